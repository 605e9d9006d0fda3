"""SELECT over system tables: what it answers, and what it cannot reach."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.errors import LakehandError, SqlError
from lakehand.sql.sql_session import SqlSession
from lakehand.sql.system_queries import QueryLimits, _run
from support.small_tables import make_table


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("lake") / "t", commits=2)


def rows(query, *parameters):
    return lakehand.run_sql(query, *parameters).to_pylist()


def test_files_partitions_and_history_of_a_table(path):
    files = rows(f"SELECT path, rows, partition FROM system.files('{path}')")
    assert [file["rows"] for file in files] == [5, 5, 5, 5]
    assert {file["partition"] for file in files} == {'{"region": "eu"}', '{"region": "us"}'}
    query = "SELECT partition, files, rows, small_files FROM system.partitions(:t)"
    assert rows(query, {"t": str(path)}) == [
        {"partition": '{"region": "eu"}', "files": 2, "rows": 10, "small_files": 2},
        {"partition": '{"region": "us"}', "files": 2, "rows": 10, "small_files": 2},
    ]
    query = f"SELECT version, operation FROM system.history('delta.`{path}`') h WHERE version > ?"
    assert rows(query, [0]) == [{"version": 1, "operation": "WRITE"}]


def test_tables_are_joined_and_named_by_common_table_expressions(path):
    query = (
        f"WITH f AS (SELECT * FROM system.files('{path}')) SELECT count(*) AS n, sum(f.bytes) > 0"
        f" AS b FROM f JOIN system.history('{path}') AS h ON h.version = 0"
    )
    assert rows(query) == [{"n": 4, "b": True}]


def test_settings_are_a_system_table_without_a_service():
    (row,) = rows("SELECT system.settings.value FROM system.settings WHERE name = 'min_files'")
    assert row == {"value": "4"}
    shown = rows("SHOW SETTINGS LIKE 'min_f%'")
    assert [row["name"] for row in shown] == ["min_files"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        'SELECT * FROM "/etc/passwd"',
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT (SELECT content FROM read_text('/etc/passwd')) FROM system.settings",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT getenv('HOME') FROM system.settings",
        "SELECT * FROM system.settings; DROP TABLE x",
        "WITH x AS (DELETE FROM system.jobs RETURNING *) SELECT * FROM x",
        "SELECT * FROM system.files('/etc', '/tmp')",
        "SELECT * FROM system.files(name) FROM system.settings",
        "SELECT * FROM other.system.settings",
        "SELECT * INTO x FROM system.settings",
        "SELECT * FROM system.setings",
        "SELECT * FROM events",
        "SELECT nothing FROM system.settings",
        "SELECT error('x') FROM system.settings",
        "SELECT FROM WHERE",
        "SELECT 'abc",
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
        "SHOW SETTINGS WHERE 1 = 1) UNION SELECT (1",
        "SHOW SETTINGS WHERE name IN (SELECT content FROM read_text('/etc/passwd'))",
        "WITH settings AS (SELECT 1) COPY settings TO '/tmp/x'",
    ],
)
def test_nothing_else_can_be_read_or_changed(query):
    with pytest.raises(LakehandError) as caught:
        lakehand.run_sql(query)
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/lakehand-never'",
        "ATTACH '/tmp/lakehand-never.db'",
        "INSTALL httpfs",
        "SET memory_limit = '100GB'",
        "SELECT * FROM rows_of_this_process",
    ],
)
def test_duckdb_itself_reaches_nothing_but_the_given_rows(query):
    rows_of_this_process = pa.table({"secret": [1]})
    with pytest.raises(SqlError):
        _run(query, None, {"t": rows_of_this_process}, QueryLimits())
    assert _run("SELECT * FROM t", None, {"t": rows_of_this_process}, QueryLimits()).num_rows == 1


@pytest.mark.parametrize(
    ("query", "message"),
    {
        "SELECT * FROM settings": "no system table settings",
        "SELECT * FROM other.settings": "no system table other.settings",
        "WITH x AS (SELECT 1) INSERT INTO system.settings SELECT * FROM x": "only SELECT",
        "WITH x AS (SELECT 1) DELETE FROM system.settings": "only SELECT",
    }.items(),
)
def test_a_query_is_refused_before_duckdb_sees_it(query, message):
    with pytest.raises(SqlError, match=message):
        lakehand.run_sql(query)


def test_wrong_parameters_are_refused():
    query = "SELECT * FROM system.settings WHERE name = "
    with pytest.raises(SqlError, match="1 parameters, 0 were given"):
        lakehand.run_sql(f"{query}?")
    with pytest.raises(SqlError, match="no parameter named 'x'"):
        lakehand.run_sql(f"{query}:x", {"y": 1})
    assert rows(f"{query}?", ["' OR 1 = 1 --"]) == []


_TEXT = (
    "SELECT|*|name|value|count(*)|FROM|system.settings|system.jobs|system.files('/')|WHERE|AND|=|("
    "|)|,|'x'|1|NULL|JOIN|ON|true|GROUP BY|ORDER BY|LIMIT|UNION|WITH x AS|x|range(3)|CASE|WHEN|END"
    '|;|--|/*|*/|"|?|:p|CAST(1 AS INT)|generate_series(1, 100000000)|::DATE|[1]|{|}|é'
)
_PIECES = st.sampled_from(_TEXT.split("|"))


@settings(max_examples=40)
@given(st.lists(_PIECES, max_size=12).map(" ".join))
def test_any_query_has_rows_or_a_typed_error(rest):
    session = SqlSession(limits=QueryLimits(seconds=0.5))
    for query in (f"SELECT {rest}", f"SELECT * FROM system.settings {rest}"):
        with suppress(LakehandError):
            session.run(query).to_json()


def test_a_query_that_takes_too_long_is_stopped():
    session = SqlSession(limits=QueryLimits(seconds=0.3))
    many = ", ".join(f"system.settings s{n}" for n in range(8))
    with pytest.raises(SqlError, match=r"took more than 0\.3 s"):
        session.run(f"SELECT count(*) FROM {many} WHERE s1.name > s2.name || s3.name")


def test_a_result_with_too_many_rows_says_so():
    session = SqlSession(limits=QueryLimits(rows=3))
    result = session.run("SELECT name FROM system.settings ORDER BY name")
    assert (result.rows.num_rows, result.truncated) == (3, True)
    assert result.to_json()["truncated"]
    assert not session.run("SELECT name FROM system.settings LIMIT 3").truncated


def test_results_are_arrow_csv_and_json(path):
    result = lakehand.run_sql(f"DESCRIBE DETAIL {path}")
    assert result.to_arrow().schema.field("partitionColumns").type == pa.list_(pa.string())
    header, row = result.to_csv().splitlines()
    assert header.startswith("format,id,name")
    assert '"[""region""]"' in row
    report = lakehand.run_sql(f"VACUUM {path} DRY RUN")
    assert report.to_arrow().column("outcome").to_pylist() == ["dry_run"]
    assert len(report.to_csv().splitlines()) == 2
