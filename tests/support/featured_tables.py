"""Tables that delta-spark makes, each with one feature in use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.oracle import Oracle

#: Four files of 25 rows each; every table has these columns first.
ROWS = "SELECT id, concat('name ', id) AS name FROM range({start}, {start} + 100)"
COLUMNS = "id BIGINT, name STRING"


@dataclass(frozen=True, kw_only=True)
class FeaturedTable:
    """How to make a table, and what to expect of other engines."""

    name: str
    columns: str = COLUMNS
    #: Between columns and properties: CLUSTER BY and the like.
    clause: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    #: Rows that are written in four files; None: `after` writes them.
    query: str | None = ROWS.format(start=0)
    #: Statements after the first rows; `{t}` is the table.
    after: tuple[str, ...] = ()
    #: Whether delta-rs can read it.
    delta_rs_reads: bool = True
    #: Whether lakehand adds rows to it; a reason where it does not.
    append_refused: str | None = None

    def provide(self, oracle: Oracle, path: Path) -> None:
        """Put a copy of the table at `path`; it is made once a session."""
        oracle.provide(self.name, path, lambda made: self.create(oracle, made))

    def create(self, oracle: Oracle, path: Path) -> None:
        table = f"delta.`{path}`"
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        settings = f"TBLPROPERTIES ({properties})" if properties else ""
        oracle.sql(f"CREATE TABLE {table} ({self.columns}) USING delta {self.clause} {settings}")
        if self.query is not None:
            oracle.write(path, self.query, files=4)
        for statement in self.after:
            oracle.sql(statement.format(t=table))


def _mapped(mode: str) -> FeaturedTable:
    return FeaturedTable(
        name=f"column mapping by {mode}",
        columns="id BIGINT, name STRING, gone INT, s STRUCT<x: INT, y: STRING>",
        properties={"delta.columnMapping.mode": mode},
        query="SELECT id, concat('n', id) AS name, 1 AS gone,"
        " named_struct('x', CAST(id AS INT), 'y', 'y') AS s FROM range(100)",
        after=(
            "ALTER TABLE {t} RENAME COLUMN name TO `a name, new`",
            "ALTER TABLE {t} RENAME COLUMN s.x TO z",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} ADD COLUMN added STRING",
            "INSERT INTO {t} VALUES (1000, 'late', named_struct('z', 5, 'y', NULL), 'here')",
        ),
    )


FEATURED_TABLES = (
    FeaturedTable(
        name="deletion vectors",
        properties={"delta.enableDeletionVectors": "true"},
        after=("DELETE FROM {t} WHERE id % 3 = 0",),
    ),
    _mapped("name"),
    _mapped("id"),
    FeaturedTable(
        name="row tracking",
        properties={"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
        after=(
            "UPDATE {t} SET name = 'updated' WHERE id % 10 = 3",
            "DELETE FROM {t} WHERE id % 10 = 4",
            "INSERT INTO {t} VALUES (1000, 'late')",
        ),
    ),
    FeaturedTable(
        name="clustering",
        clause="CLUSTER BY (id)",
        after=("INSERT INTO {t} VALUES (1000, 'late')",),
    ),
    FeaturedTable(
        name="in-commit timestamps",
        properties={"delta.enableInCommitTimestamps": "true"},
    ),
    FeaturedTable(
        name="V2 checkpoints",
        properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
        after=("INSERT INTO {t} VALUES (1000, 'late')", "INSERT INTO {t} VALUES (1001, 'later')"),
    ),
    FeaturedTable(
        name="change feed",
        properties={"delta.enableChangeDataFeed": "true"},
        after=("UPDATE {t} SET name = 'changed' WHERE id = 7", "DELETE FROM {t} WHERE id = 8"),
    ),
    FeaturedTable(
        name="constraints",
        columns="id BIGINT NOT NULL, name STRING",
        after=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",),
    ),
    FeaturedTable(
        name="generated columns",
        columns="id BIGINT, name STRING, twice BIGINT GENERATED ALWAYS AS (id * 2)",
    ),
    FeaturedTable(
        name="identity columns",
        columns="id BIGINT, name STRING, number BIGINT GENERATED ALWAYS AS IDENTITY",
        append_refused="identityColumns",
    ),
    FeaturedTable(
        name="type widening",
        columns="id BIGINT, name STRING, grown SHORT, d DECIMAL(5, 2), f FLOAT, day DATE",
        properties={"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"},
        query="SELECT id, concat('n', id) AS name, CAST(id AS SHORT) AS grown,"
        " CAST(id AS DECIMAL(5, 2)) AS d, CAST(id / 3 AS FLOAT) AS f, DATE'2026-01-01' AS day"
        " FROM range(100)",
        after=(
            "ALTER TABLE {t} ALTER COLUMN grown TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(12, 4)",
            "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
            "ALTER TABLE {t} ALTER COLUMN day TYPE TIMESTAMP_NTZ",
            "INSERT INTO {t} VALUES (1000, 'late', 5000000000, 1.2345, 0.1D, CAST('2026' AS DATE))",
        ),
        delta_rs_reads=False,
    ),
    FeaturedTable(
        name="timestamps without zone",
        columns="id BIGINT, name STRING, at TIMESTAMP_NTZ",
        query="SELECT id, concat('n', id) AS name,"
        " CAST(timestamp_micros(id * 1000001) AS TIMESTAMP_NTZ) AS at FROM range(100)",
    ),
    FeaturedTable(name="append-only", properties={"delta.appendOnly": "true"}),
)
