"""Statements on tables here: each does what the method of the table does."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    NotATableError,
    PredicateError,
    ServiceError,
    SqlError,
    UnknownColumnError,
    UnknownSettingError,
    ValidationError,
)
from support.small_tables import fingerprint, make_table, read_sorted


@pytest.fixture
def path(tmp_path):
    return make_table(tmp_path / "t", commits=2)


def run(statement, *parameters, **options):
    return lakehand.run_sql(statement, *parameters, **options).to_json()


def test_optimize_compacts_two_small_files_of_the_chosen_partition(path):
    before = read_sorted(path)
    result = run(f"OPTIMIZE delta.`{path}` WHERE region = 'eu'")
    report = result["report"]
    assert (result["statement"], result["job"]) == ("optimize", None)
    assert (report["outcome"], report["files_removed"], report["files_added"]) == (
        "committed", 2, 1,
    )  # fmt: skip
    assert read_sorted(path) == before


def test_compact_keeps_the_minimum_of_files_unless_it_is_told(path):
    assert run(f"COMPACT TABLE '{path}'")["report"]["outcome"] == "nothing_to_do"
    report = run(f"COMPACT TABLE '{path}' WITH (compaction.min-files = 2) DRY RUN")["report"]
    assert report["outcome"] == "dry_run"
    report = run(f"COMPACT TABLE '{path}' ORDER BY (amount DESC) WITH (minFiles = 2)")["report"]
    assert report["outcome"] == "committed"


def test_the_report_is_that_of_the_method(path):
    expected = lakehand.open_table(path).vacuum(dry_run=True).to_json()
    found = run(f"VACUUM {path} DRY RUN")["report"]
    changing = {"duration_ms", "run_id", "id"}
    assert {k: v for k, v in found.items() if k not in changing} == json.loads(
        json.dumps({k: v for k, v in expected.items() if k not in changing}, default=str)
    )


def test_z_order_clusters(path):
    report = run(f"OPTIMIZE {path} ZORDER BY (id, amount)")["report"]
    assert (report["operation"], report["outcome"]) == ("cluster", "committed")
    (commit,) = run(f"DESCRIBE HISTORY {path} LIMIT 1")["rows"]
    assert commit["operationParameters"]["zOrderBy"] == '["id","amount"]'


def test_explain_writes_nothing(path):
    before = fingerprint(path)
    plan = run(f"EXPLAIN OPTIMIZE {path}")["report"]
    assert (plan["operation"], len(plan["groups"])) == ("compact", 2)
    steps = run(f"EXPLAIN MAINTENANCE OF {path}")["report"]["steps"]
    assert [step["step"] for step in steps] == ["compact", "vacuum", "checkpoint", "clean_logs"]
    assert fingerprint(path) == before


def test_restore_checkpoint_verify_and_deduplicate(path):
    assert run(f"RESTORE {path} TO VERSION AS OF 0")["report"]["version"] == 2
    assert read_sorted(path).num_rows == 10
    assert run(f"CHECKPOINT TABLE {path}")["report"]["version"] == 2
    assert run(f"VERIFY TABLE {path}")["report"]["outcome"] != "damaged"
    report = run(f"DEDUPLICATE TABLE {path} BY (region) DRY RUN")["report"]
    assert report["duplicates_removed"] == 8


def test_describe_detail_has_the_columns_of_delta(path):
    (row,) = run(f"DESCRIBE DETAIL '{path}'")["rows"]
    assert row["partitionColumns"] == ["region"]
    assert (row["numFiles"], row["minReaderVersion"], row["minWriterVersion"]) == (4, 1, 2)
    assert row["tableFeatures"] == ["appendOnly", "invariants"]


def test_properties_and_clustering_columns_are_changed(tmp_path):
    path = tmp_path / "t"
    lakehand.create_table(path, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    properties = "delta.logRetentionDuration = 'interval 9 days', x = 1"
    run(f"ALTER TABLE {path} SET TBLPROPERTIES ({properties})")
    assert lakehand.open_table(path).snapshot().properties["x"] == "1"
    report = run(f"ALTER TABLE {path} UNSET TBLPROPERTIES ('x')")
    assert report["statement"] == "alter table"
    with pytest.raises(ValidationError):
        run(f"ALTER TABLE {path} UNSET TBLPROPERTIES ('x')")
    run(f"ALTER TABLE {path} UNSET TBLPROPERTIES IF EXISTS ('x')")
    run(f"ALTER TABLE {path} CLUSTER BY (b, a)")
    (row,) = run(f"DESCRIBE DETAIL {path}")["rows"]
    assert (row["clusteringColumns"], row["properties"]["delta.logRetentionDuration"]) == (
        ["b", "a"], "interval 9 days",
    )  # fmt: skip
    assert run(f"EXPLAIN OPTIMIZE {path}")["report"]["operation"] == "cluster"
    run(f"ALTER TABLE {path} CLUSTER BY NONE")
    assert lakehand.open_table(path).clustering_columns() == ()


def test_a_value_with_quotes_selects_what_it_says(tmp_path):
    path = tmp_path / "t"
    lakehand.create_table(path, pa.schema({"p": pa.string(), "n": pa.int64()}), partition_by=["p"])
    odd = "it's \\ '; --"
    for value in (odd, "x", odd, "x"):
        lakehand.open_table(path).append(pa.table({"p": [value], "n": [1]}), sink_maintenance=False)
    report = lakehand.run_sql("OPTIMIZE :t WHERE p = :p", {"t": str(path), "p": odd}).report
    assert report["files_removed"] == 2


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("OPTIMIZE {t} WHERE region = 'eu' OR 1 = 1) --", SqlError),
        ("OPTIMIZE {t} WHERE region = 'eu'; VACUUM {t}", SqlError),
        ("OPTIMIZE {t} WHERE region = 'eu' DRYRUN", PredicateError),
        ("OPTIMIZE {t} WHERE (SELECT 1)", PredicateError),
        ("OPTIMIZE {t} WHERE regoin = 'eu'", UnknownColumnError),
        ("OPTIMIZE {t} WITH (min_fils = 2)", UnknownSettingError),
        ("OPTIMIZE {t} WITH (min_files = true)", ValidationError),
        ("OPTIMIZE {t} WITH (minFiles = 2, min_files = 3)", ValidationError),
        ("OPTIMIZE {t} WITH (dry_run = 'yes')", ValidationError),
        ("OPTIMIZE {t} WITH (plan = 'x')", UnknownSettingError),
        ("OPTIMIZE {t} FULL", ValidationError),
        ("CHECKPOINT TABLE {t} WITH (min_files = 2)", ValidationError),
        ("VACUUM {t} RETAIN 0 HOURS", ValidationError),
        ("VACUUM {t} ASYNC", SqlError),
        ("VACUUM {t}/../../etc", NotATableError),
        ("VACUUM lance.`{t}`", ValidationError),
        ("VACUUM no_such_table", NotATableError),
        ("ALTER TABLE {t} PAUSE", ServiceError),
        ("ALTER TABLE {t} SET (auto_compact = true)", ServiceError),
        ("CANCEL JOB 1", ServiceError),
        ("SHOW JOBS", ServiceError),
        ("DESCRIBE HISTORY {t} LIMIT 0", ValidationError),
        ("DROP TABLE {t}", SqlError),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_changes(path, statement, error):
    before = fingerprint(path)
    with pytest.raises(error):
        lakehand.run_sql(statement.format(t=path))
    assert fingerprint(path) == before


def test_a_foreign_statement_goes_to_spark_with_its_parameters():
    class Session:
        def sql(self, text, args=None):
            return text, args

    statement = "SELECT * FROM events WHERE id = :id"
    assert lakehand.run_sql(statement, {"id": 1}, spark=Session()) == (statement, {"id": 1})
    with pytest.raises(SqlError, match="OPTIMIZE"):
        lakehand.run_sql("OPTIMIZE t ZORDR BY a", spark=Session())


def test_merge_reads_another_table_and_reports_what_it_changed(tmp_path):
    rows = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]})
    target = lakehand.create_table(tmp_path / "t", rows.schema, engine="local")
    target.append(rows)
    source = lakehand.create_table(tmp_path / "s", rows.schema, engine="local")
    source.append(pa.table({"id": [2, 3, 9], "n": [20, 30, 90]}))
    statement = (
        f"MERGE INTO '{tmp_path / 't'}' AS t USING delta.`{tmp_path / 's'}` AS s ON t.id = s.id"
        " WHEN MATCHED AND s.n > ? THEN DELETE WHEN MATCHED THEN UPDATE SET n = t.n + s.n"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    counts = ("rows_updated", "rows_deleted", "rows_inserted")
    planned = lakehand.run_sql(f"{statement} DRY RUN", [25]).report
    assert (target.version(), planned["outcome"]) == (1, "dry_run")
    report = lakehand.run_sql(statement, [25]).report
    assert [report[name] for name in counts] == [planned[name] for name in counts] == [1, 1, 1]
    found = target.to_arrow().to_pylist()
    assert sorted((one["id"], one["n"]) for one in found) == [(1, 1), (2, 22), (9, 90)]
