"""The grammar: what statements mean, and errors that say where and what."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.errors import SqlError
from lakehand.sql.grammar import CLAUSES, FIRST_WORDS, KEYWORDS, _Grammar, is_known, parse_statement
from lakehand.sql.lexer import split_statements
from lakehand.sql.statements import (
    ChangeJob,
    ChangeSettings,
    ClusterBy,
    Describe,
    Explain,
    PauseTable,
    Query,
    RunVerb,
    SetProperties,
    Show,
    TableName,
    UnsetProperties,
)

T = TableName(text="t")
#: Statements that run a verb: its name, and its options.
VERBS = {
    "COMPACT TABLE t": ("compact", {}),
    "compact table t where day = 'mon' order by (a desc, b)": (
        "compact",
        {"where": "day = 'mon'", "sort_by": "a DESC, b"},
    ),
    "COMPACT TABLE t Z_ORDER BY (a, `b c`) DRY RUN": (
        "cluster",
        {"by": ["a", "`b c`"], "curve": "zorder", "dry_run": True},
    ),
    "COMPACT TABLE t WITH (target.file.size = '64MB', min-files = 2, prove = counts)": (
        "compact",
        {"target.file.size": "64MB", "min-files": 2, "prove": "counts"},
    ),
    "COMPACT TABLE t WITH (a = -1, b = [1, 'x'], c = 5min, d = NULL, 'e.f' = (1.5, true))": (
        "compact",
        {"a": -1, "b": [1, "x"], "c": "5min", "d": None, "e.f": [1.5, True]},
    ),
    "OPTIMIZE t": ("optimize", {}),
    "OPTIMIZE TABLE t FULL": ("optimize", {"full": True}),
    "OPTIMIZE t WHERE a > 1 ZORDER BY a, b": (
        "cluster",
        {"where": "a > 1", "by": ["a", "b"], "curve": "zorder"},
    ),
    "OPTIMIZE TABLE t RECOMPUTE STATISTICS": ("statistics", {}),
    "VACUUM t": ("vacuum", {}),
    "VACUUM TABLE t RETAIN 168 HOURS LITE DRY RUN": (
        "vacuum",
        {"retention": "168h", "mode": "lite", "dry_run": True},
    ),
    "VACUUM t FULL": ("vacuum", {"mode": "full"}),
    "PURGE TABLE t": ("purge", {}),
    "REORG TABLE t APPLY (PURGE)": ("purge", {}),
    "CHECKPOINT TABLE t": ("checkpoint", {}),
    "VERIFY TABLE t DEEP": ("verify", {"deep": True}),
    "REPAIR TABLE t DRY RUN": ("repair", {"dry_run": True}),
    "MAINTAIN TABLE t WITH (skip = (vacuum, checkpoint))": (
        "maintain",
        {"skip": ["vacuum", "checkpoint"]},
    ),
    "DEDUPLICATE TABLE t BY (id, region) KEEP LATEST BY ts": (
        "deduplicate",
        {"key": ["id", "region"], "keep": "latest", "order_by": "ts"},
    ),
    "DEDUPLICATE TABLE t EXACT": ("deduplicate", {"exact": True}),
    "RESTORE TABLE t TO VERSION AS OF 3": ("restore", {"version": 3}),
    "RESTORE t TO TIMESTAMP AS OF '2026-01-02'": ("restore", {"timestamp": "2026-01-02"}),
}
OTHERS = {
    "DESCRIBE HISTORY t LIMIT 3": Describe(what="history", table=T, limit=3),
    "DESC DETAIL t": Describe(what="detail", table=T),
    "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b', delta.appendOnly = true, delta.n = 5)": (
        SetProperties(table=T, properties={"a": "b", "delta.appendOnly": "true", "delta.n": "5"})
    ),
    "ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', delta.b)": (
        UnsetProperties(table=T, names=("a", "delta.b"), if_exists=True)
    ),
    "ALTER TABLE t SET (auto_compact = true, compact_threshold_mb = 100)": (
        ChangeSettings(table=T, settings={"auto_compact": True, "compact_threshold_mb": 100})
    ),
    "ALTER TABLE t RESET (auto_compact)": ChangeSettings(table=T, removed=("auto_compact",)),
    "ALTER TABLE t RESET": ChangeSettings(table=T, removed=()),
    "ALTER TABLE t CLUSTER BY (a, b)": ClusterBy(table=T, columns=("a", "b")),
    "ALTER TABLE t CLUSTER BY NONE": ClusterBy(table=T, columns=()),
    "ALTER TABLE t PAUSE": PauseTable(table=T),
    "ALTER TABLE t PAUSE UNTIL '2030-01-01'": PauseTable(table=T, until="2030-01-01"),
    "ALTER TABLE t RESUME": PauseTable(table=T, is_paused=False),
    "SHOW JOBS WHERE state = 'failed' LIMIT 5": (
        Show(what="jobs", where="state = 'failed'", limit=5)
    ),
    "SHOW TABLES LIKE 'a%'": Show(what="tables", like="a%"),
    "EXPLAIN MAINTENANCE OF t": (
        Explain(statement=RunVerb(keyword="MAINTAIN", verb="maintain", table=T))
    ),
    "EXPLAIN COMPACT TABLE t": (
        Explain(statement=RunVerb(keyword="COMPACT", verb="compact", table=T))
    ),
    "CANCEL JOB 7": ChangeJob(action="cancel", job=7),
    "RETRY JOB 7;": ChangeJob(action="retry", job=7),
    "SELECT 1 FROM system.jobs": Query(text="SELECT 1 FROM system.jobs"),
}


@pytest.mark.parametrize("text", VERBS)
def test_a_statement_runs_a_verb_with_options(text):
    verb, options = VERBS[text]
    found = parse_statement(text)
    assert (found.verb, found.options, found.table) == (verb, options, T)
    assert not found.is_async


@pytest.mark.parametrize("text", OTHERS)
def test_other_statements_are_parsed(text):
    assert parse_statement(text) == OTHERS[text]


@pytest.mark.parametrize(
    ("written", "table"),
    {
        "events": TableName(text="events"),
        "main.sales.events": TableName(text="main.sales.events"),
        "`odd name`": TableName(text="odd name"),
        "'/lake/events'": TableName(text="/lake/events", is_path=True),
        "`s3://lake/events`": TableName(text="s3://lake/events", is_path=True),
        "delta.`s3://lake/events`": (
            TableName(text="s3://lake/events", format="delta", is_path=True)
        ),
        "lance.`/lake/v`": TableName(text="/lake/v", format="lance", is_path=True),
        "/lake/a--b": TableName(text="/lake/a--b", is_path=True),
        "s3://lake/a/b": TableName(text="s3://lake/a/b", is_path=True),
        "./a": TableName(text="./a", is_path=True),
        "lake/a-b.c": TableName(text="lake/a-b.c", is_path=True),
        "events/* a comment */": TableName(text="events"),
        "events -- a comment with a /\n": TableName(text="events"),
    }.items(),
)
def test_a_table_is_a_path_a_url_or_a_name(written, table):
    assert parse_statement(f"VACUUM {written} DRY RUN").table == table


def test_async_is_no_option_of_the_verb():
    found = parse_statement("OPTIMIZE t ASYNC")
    assert found.is_async
    assert found.options == {}
    assert not parse_statement("OPTIMIZE t WITH (is_async = true)").is_async


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("OPTIMISE t", "expected COMPACT", 1, "did you mean OPTIMIZE?"),
        ("OPTIMIZE t ZORDR BY a", "found 'ZORDR'", 12, "did you mean ZORDER BY?"),
        ("OPTIMIZE", "expected a table, found the end", 9, None),
        ("OPTIMIZE 'a", "has no matching '", 10, None),
        ("OPTIMIZE t; DROP TABLE t", "another statement", 13, "run one statement at a time"),
        ("OPTIMIZE t WHERE", "expected a condition", 17, None),
        ("OPTIMIZE t WHERE (a = 1", "has no matching bracket", 18, None),
        ("OPTIMIZE t WHERE a = 1)", "has no matching bracket", 23, None),
        ("OPTIMIZE t DRY RUN DRY RUN", "DRY RUN is given twice", 20, None),
        ("COMPACT TABLE t WITH (a = 1, A = 2)", "A is given twice", 30, None),
        ("COMPACT TABLE t ORDER BY a Z_ORDER BY b", "not both", 40, None),
        ("VACUUM t LITE FULL", "not both", 19, None),
        ("VACUUM t RETAIN many HOURS", "a number of hours", 17, None),
        ("RESTORE t", "expected TO VERSION AS OF", 10, None),
        ("REORG TABLE t", "expected APPLY (PURGE)", 14, None),
        ("EXPLAIN VACUUM t ASYNC", "leave ASYNC out", 23, None),
        ("", "the statement is empty", 1, None),
        (
            "DESCRIBE t",
            "expected HISTORY or DETAIL",
            10,
            "DESCRIBE DETAIL t shows properties and size, DESCRIBE HISTORY t the commits",
        ),
        ("CANCEL JOB 1.5", "a whole number", 12, None),
        ("VACUUM t /* no end", "comment has no end", 10, None),
        ("ALTER TABLE t DROP COLUMN a", "expected SET", 15, None),
    ],
)
def test_an_error_says_where_it_is_and_what_was_expected(text, message, column, hint):
    with pytest.raises(SqlError) as caught:
        parse_statement(text)
    error = caught.value
    assert message in error.message
    assert (error.line, error.column, error.hint) == (1, column, hint)
    shown, caret = error.message.splitlines()[-2:]
    assert shown == f"  {text}"
    assert caret == " " * (column + 1) + "^"


def test_the_place_of_an_error_in_a_long_statement_has_its_line():
    with pytest.raises(SqlError) as caught:
        parse_statement("OPTIMIZE t\n  FULL\n  ORDERED")
    assert (caught.value.line, caught.value.column) == (3, 3)


def test_parameters_are_values_and_never_sql():
    found = parse_statement(
        "OPTIMIZE ? WHERE name = ? AND day >= ? AND n > ? ZORDER BY a",
        ["/lake/x", "it's \\ '; DROP TABLE t --", date(2026, 1, 2), -5],
    )
    assert found.table == TableName(text="/lake/x", is_path=True)
    assert found.options["where"] == (
        r"name = 'it\'s \\ \'; DROP TABLE t --' AND day >= DATE '2026-01-02' AND n > (-5)"
    )
    assert found.options["by"] == ["a"]
    named = parse_statement("VACUUM :t RETAIN :hours HOURS", {"t": "x", "hours": 200})
    assert (named.table.text, named.options) == ("x", {"retention": "200h"})


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("VACUUM ?", None, "no parameter 1"),
        ("VACUUM ?", ["a", "b"], "does not use the parameters 1"),
        ("VACUUM :t", {"u": "a"}, "no parameter named 't'"),
        ("VACUUM ?", [5], "a string that is not empty"),
        ("OPTIMIZE t WHERE a = ?", [{"a": 1}], "cannot be of type dict"),
        ("OPTIMIZE t WHERE a = ?", [float("nan")], "cannot be of type float"),
        ("VACUUM t RETAIN ? HOURS", [True], "a number of hours"),
    ],
)
def test_wrong_parameters_are_refused(text, parameters, message):
    with pytest.raises(SqlError, match=message):
        parse_statement(text, parameters)


def test_a_condition_ends_where_a_clause_begins_and_not_in_a_string_or_name():
    text = "COMPACT TABLE t WHERE a = 'x DRY RUN' AND `dry run` = 1 OR full IN (1) DRY RUN"
    found = parse_statement(text)
    assert found.options == {
        "where": "a = 'x DRY RUN' AND `dry run` = 1 OR full IN (1)",
        "dry_run": True,
    }
    assert parse_statement("OPTIMIZE t WHERE a:b::int = 1").options["where"] == "a:b::int = 1"


def test_statements_are_split_at_semicolons_outside_of_strings_and_comments():
    text = "SHOW JOBS;\n-- a; b\nVACUUM 'x;y' /* ; */;\n;"
    assert split_statements(text) == ["SHOW JOBS", "-- a; b\nVACUUM 'x;y' /* ; */"]


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in (*VERBS, *OTHERS) if text != "SHOW TABLES LIKE 'a%'"),
        "OPTIMIZE t ZORDR BY a",
        "ALTER TABLE a.b.c CLUSTER",
    ],
)
def test_what_begins_as_a_statement_of_lakehand_is_known(text):
    assert is_known(text)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW TABLES",
        "SELECT * FROM events",
        "CREATE TABLE t (a INT)",
        "DESCRIBE TABLE EXTENDED t",
        "DESC t",
        "EXPLAIN SELECT 1",
        "ALTER TABLE t ADD COLUMNS (a INT)",
        "ALTER TABLE t SET LOCATION 'x'",
        "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER VIEW v AS SELECT 1",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "'",
        "",
    ],
)
def test_statements_of_spark_are_not_known(text):
    assert not is_known(text)


MERGE = """
    MERGE INTO lake.people AS t USING delta.`s3://lake/new people` s
    ON t.id = s.id AND t.kind = CASE s.kind WHEN 1 THEN ? ELSE 'b' END
    WHEN MATCHED AND s.gone THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.name = concat(s.name, ', ', t.`last, name`), n = s.n + 1
    WHEN NOT MATCHED BY TARGET AND s.id > 0 THEN INSERT (id, `a b`) VALUES (s.id, least(1, s.n))
    WHEN NOT MATCHED THEN INSERT * EXCEPT (n)
    WHEN NOT MATCHED BY SOURCE AND t.n = 1 THEN UPDATE SET n = 2
    WITH (prove = counts) DRY RUN;
"""


def test_a_merge_has_its_clauses_in_their_order():
    merge = parse_statement(MERGE, ["it's"])
    assert (merge.table, merge.target) == (TableName(text="lake.people"), "t")
    assert (merge.source.text, merge.source_alias) == ("s3://lake/new people", "s")
    assert merge.on == r"t.id = s.id AND t.kind = CASE s.kind WHEN 1 THEN 'it\'s' ELSE 'b' END"
    assert merge.options == {"prove": "counts", "dry_run": True}
    found = [(c.kind, c.action, c.condition, c.values, c.except_columns) for c in merge.clauses]
    names = {"`name`": "concat(s.name, ', ', t.`last, name`)", "`n`": "s.n + 1"}
    assert found == [
        ("matched", "delete", "s.gone", None, ()),
        ("matched", "update", None, names, ()),
        ("not_matched", "insert", "s.id > 0", {"`id`": "s.id", "`a b`": "least(1, s.n)"}, ()),
        ("not_matched", "insert", None, None, ("n",)),
        ("not_matched_by_source", "update", "t.n = 1", {"`n`": "2"}, ()),
    ]
    named = parse_statement("MERGE INTO lake.people USING new ON true WHEN MATCHED THEN UPDATE *")
    assert (named.target, named.source_alias) == ("people", "new")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "expected WHEN"),
        ("WHEN MATCHED THEN INSERT *", "expected UPDATE or DELETE"),
        ("WHEN NOT MATCHED THEN DELETE", "expected INSERT"),
        ("WHEN MATCHED THEN UPDATE n = 1", r"expected SET or \*"),
        ("WHEN MATCHED THEN UPDATE SET n = 1, t.n = 2", "assigned twice"),
        ("WHEN MATCHED THEN UPDATE SET n = 1,", "expected a column"),
        ("WHEN MATCHED AND THEN DELETE", "expected"),
        ("WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "2 columns and 1 values"),
        ("WHEN NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)", "a column twice"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "no row of the source"),
        ("WHEN MATCHED THEN DELETE ASYNC", "expected WHEN, WITH, DRY RUN"),
        ("WHEN MATCHED THEN DELETE; DELETE FROM t", "another statement"),
    ],
)
def test_a_wrong_merge_is_an_error_that_says_where(rest, message):
    with pytest.raises(SqlError, match=message):
        parse_statement(f"MERGE INTO a AS t USING b AS s ON t.id = s.id {rest}")
    for text, words in (
        ("MERGE INTO /lake/a USING b ON true WHEN MATCHED THEN DELETE", "needs an alias"),
        ("MERGE INTO a USING (SELECT 1) AS s ON true WHEN MATCHED THEN DELETE", "is a table"),
    ):
        with pytest.raises(SqlError, match=words):
            parse_statement(text)


#: What statements are made worse with: beginnings without an end, and values at their limits.
_ODD = (
    *("-", "-1", "/*", "*/", "--", "'", '"', "`", "``", "''", "r'", "(", ")", "[", "]", "(1, [2])"),
    *("?", ":a", ":", "::", ".", "..", ",", ";", ";;", "=", "\0", "\\", "\n", "/", "a/b", "s3://"),
    *(
        "1e999",
        "9" * 5_000,
        "1.5",
        "0x1",
        "128MB",
        "1e",
        "TRUE",
        "NULL",
        "NaN",
        "é",
        "\u2028",
        "\U0001d7d9",
    ),
)
_PIECES = re.compile(r"'[^']*'|`[^`]*`|\w+|\s+|.")


@st.composite
def _worse_statements(draw):
    """Valid statements in which pieces are left out, repeated, moved, or replaced by odd ones."""
    pieces = _PIECES.findall(draw(st.sampled_from([*VERBS, *OTHERS, MERGE])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(pieces)))
        match draw(st.integers(0, 3)):
            case 0:
                del pieces[at : at + 1]
            case 1:
                pieces[at:at] = [" ", draw(st.sampled_from(_ODD)), " "]
            case 2:
                pieces[at : at + 1] = [draw(st.sampled_from([*_ODD, *KEYWORDS]))]
            case 3:
                other = draw(st.integers(0, len(pieces)))
                pieces[at:at] = pieces[other : other + 3]
    return "".join(pieces)


@settings(max_examples=500)
@given(
    _worse_statements()
    | st.tuples(st.sampled_from(FIRST_WORDS), st.text(max_size=40)).map(" ".join)
    | st.lists(st.sampled_from([*KEYWORDS, *_ODD, "t"]), max_size=12).map(" ".join),
    st.none()
    | st.lists(st.integers() | st.text(max_size=3) | st.floats() | st.none(), max_size=2)
    | st.dictionaries(st.just("a"), st.booleans() | st.binary(max_size=2)),
)
def test_any_text_is_a_statement_or_a_typed_error(text, parameters):
    for run in (lambda: parse_statement(text, parameters), lambda: split_statements(text)):
        try:
            run()
        except SqlError as error:
            assert error.message  # noqa: PT017
    is_known(text)


def test_a_long_statement_is_parsed_in_no_time_or_refused():
    many = "(" * 20_000 + ")" * 20_000
    assert parse_statement(f"OPTIMIZE t WHERE {many}").options["where"] == many
    with pytest.raises(SqlError, match="at most 1,000,000 characters"):
        parse_statement("OPTIMIZE t WHERE a = '" + "x" * 1_000_000 + "'")
    quotes = "OPTIMIZE t WHERE a = " + "'\\" * 100_000
    with pytest.raises(SqlError):
        parse_statement(quotes)


def test_every_clause_has_a_reader():
    readers = _Grammar("")._readers
    assert {words for clauses in CLAUSES.values() for words in clauses} == set(readers)
