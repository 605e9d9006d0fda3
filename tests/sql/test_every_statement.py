"""Every statement of the grammar gives the same document on the command, in Python and on HTTP."""

from __future__ import annotations

import pytest

from lakehand.errors import SqlError
from lakehand.service import client_jobs
from lakehand.sql import statements as sql
from lakehand.sql.grammar import CLAUSES, FIRST_WORDS, KEYWORDS, _Grammar
from lakehand.sql.lexer import Lexer
from support.sql_surfaces import Surfaces

#: Statements by what they return: a report of a job, a report, a job, rows, an error.
JOBS = (
    "COMPACT TABLE orders WHERE region = 'eu' ORDER BY (id DESC, at) WITH (min_files = 2)",
    "COMPACT TABLE orders Z_ORDER BY (id, at)",
    "OPTIMIZE TABLE orders ZORDER BY (id) DRY RUN",
    "OPTIMIZE orders WHERE region = 'eu' WITH (prove = digest)",
    "OPTIMIZE orders FULL RECOMPUTE STATISTICS",
    "VACUUM TABLE orders RETAIN 200 HOURS WITH (grace = '0s')",
    "VACUUM orders LITE DRY RUN",
    "PURGE TABLE orders DRY RUN",
    "REORG TABLE orders APPLY (PURGE) WITH (grace = '1h') DRY RUN",
    "CHECKPOINT TABLE orders",
    "VERIFY TABLE orders DEEP WITH (proofs = false)",
    "REPAIR TABLE orders DEEP WITH (accept_data_loss = false) DRY RUN",
    "MAINTAIN TABLE orders WITH (skip = (compact, vacuum)) DRY RUN",
    "DEDUPLICATE TABLE orders BY (id) KEEP LATEST BY at WITH (prove = counts)",
    "DEDUPLICATE TABLE orders EXACT KEEP FIRST DRY RUN",
)
QUEUED = (
    "COMPACT TABLE orders ZORDER BY (id) DRY RUN ASYNC",
    "COMPACT TABLE orders ORDER BY id ASC NULLS LAST, at DESC NULLS FIRST ASYNC",
    "OPTIMIZE orders Z_ORDER BY (id) ASYNC",
    "VACUUM orders FULL ASYNC",
    "PURGE TABLE orders WITH (grace = '1h') ASYNC",
    "REORG TABLE orders APPLY (PURGE) ASYNC",
    "CHECKPOINT TABLE orders WITH (version = 1) ASYNC",
    "VERIFY TABLE orders ASYNC",
    "REPAIR TABLE orders ASYNC",
    "MAINTAIN TABLE orders ASYNC",
    "DEDUPLICATE TABLE orders BY (id, at) KEEP LAST ASYNC",
    "CANCEL JOB 1",
    "RETRY JOB 2",
)
REPORTS = (
    "RESTORE TABLE orders TO VERSION AS OF 1 WITH (accept_missing = false) DRY RUN",
    "RESTORE orders TO VERSION AS OF 2",
    "RESTORE orders TO TIMESTAMP AS OF '2999-01-01' DRY RUN",
    "ALTER TABLE orders SET TBLPROPERTIES ('delta.appendOnly' = true, x = 1)",
    "ALTER TABLE orders UNSET TBLPROPERTIES IF EXISTS ('x')",
    "ALTER TABLE orders CLUSTER BY NONE",
    "ALTER TABLE orders SET (auto_compact = false, compact_threshold_mb = 100)",
    "ALTER TABLE orders RESET (auto_compact)",
    "ALTER TABLE orders RESET",
    "ALTER TABLE orders PAUSE UNTIL '2999-01-01'",
    "ALTER TABLE orders RESUME",
    "EXPLAIN MAINTENANCE OF orders",
    "EXPLAIN COMPACT TABLE orders",
    "EXPLAIN OPTIMIZE orders WHERE region = 'eu'",
    "EXPLAIN VACUUM orders",
    "EXPLAIN PURGE TABLE orders",
    "EXPLAIN REPAIR TABLE orders",
    "EXPLAIN MAINTAIN TABLE orders WITH (skip = (vacuum))",
    "EXPLAIN DEDUPLICATE TABLE orders EXACT",
)
ROWS = (
    "DESCRIBE HISTORY orders LIMIT 2",
    "DESC DETAIL TABLE orders",
    "SHOW JOBS WHERE verb = 'health' LIMIT 3",
    "SHOW TABLES LIKE 'ord%'",
    "SHOW POLICIES",
    "SHOW BUDGETS",
    "SHOW WORKERS",
    "SHOW SETTINGS LIKE 'min%'",
    "SELECT partition, files FROM system.partitions('orders')",
    "WITH j AS (SELECT * FROM system.jobs) SELECT verb, state FROM j ORDER BY id",
)
#: Of which the service has no job.
MERGE = (
    "MERGE INTO orders USING orders AS s ON orders.id = s.id WHEN MATCHED THEN UPDATE SET *"
    " WHEN NOT MATCHED BY TARGET THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE DRY RUN"
)
ERRORS = (
    "OPTIMISE orders",
    "VACUUM orders RETAIN 1 HOUR",
    "VACUUM orders RETAIN 1 DAY DRY RUN LITE FULL",
    "DESCRIBE DETAIL orders; VACUUM orders",
    "ALTER TABLE orders CLUSTER BY (region)",
    "SELECT * FROM system.nothing",
    "CANCEL JOB 99",
    MERGE,
)
#: With parameters.
GIVEN = {
    "OPTIMIZE :t WHERE region = :region": {"t": "orders", "region": "it's; \\ '--"},
    "SELECT count(*) AS n FROM system.jobs WHERE verb = :verb": {"verb": "health"},
}
STATEMENTS = (*JOBS, *QUEUED, *REPORTS, *ROWS, *ERRORS, *GIVEN)


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory):
    made = Surfaces(tmp_path_factory.mktemp("surfaces"))
    yield made
    made.close()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_gives_the_same_document_everywhere(surfaces, statement, capsys, monkeypatch):
    monkeypatch.setattr(client_jobs, "_WATCH_SECONDS", 0.02, raising=True)
    found = surfaces.documents(statement, GIVEN.get(statement), capsys)
    document = found.pop("python")
    assert found == {"http": document, "cli": document}
    assert ("error" in document) == (statement in ERRORS), document
    assert (document.get("report") is not None) == (
        statement in {*JOBS, *REPORTS, "OPTIMIZE :t WHERE region = :region"}
    )
    assert (document.get("job") is not None) == (
        statement in {*JOBS, *QUEUED, "OPTIMIZE :t WHERE region = :region"}
    )


class Recorder(_Grammar):
    """Notes which of several words were chosen, and which clauses were read."""

    chosen: dict[tuple[str, ...], set[str]]
    clauses: set[tuple[str, tuple[str, ...]]]

    def choose(self, *words):
        found = super().choose(*words)
        self.chosen.setdefault(words, set()).add(found)
        return found

    def _run_verb(self, keyword):
        try:
            return super()._run_verb(keyword)
        finally:
            self.clauses |= {(keyword, words) for words in self._seen}


def recorded():
    chosen, clauses, kinds = {}, set(), set()
    for statement in STATEMENTS:
        grammar = Recorder(statement, GIVEN.get(statement))
        grammar.chosen, grammar.clauses = chosen, clauses
        try:
            kinds.add(type(grammar.statement()))
        except SqlError:  # One of the errors.
            continue
    return chosen, clauses, kinds


def test_the_statements_are_all_of_the_grammar():
    chosen, clauses, kinds = recorded()
    assert clauses == {(keyword, words) for keyword in CLAUSES for words in CLAUSES[keyword]}
    missing = {words: set(words) - found for words, found in chosen.items()}
    # Said in either number, and EXPLAIN MAINTENANCE is read before the choice.
    missing = {words: left - {"MAINTENANCE", "HOUR", "DAYS"} for words, left in missing.items()}
    assert not any(missing.values()), missing
    assert kinds == set(sql.Statement.__args__)
    said = set()
    for statement in STATEMENTS:
        said |= set(words_of(statement))
    assert {*KEYWORDS, *FIRST_WORDS} <= said


def words_of(statement):
    lexer = Lexer(statement, GIVEN.get(statement))
    while (token := lexer.peek()).kind != "end":
        yield token.text.upper()
        lexer.at = token.end
