"""Tables that delta-spark makes, one for each feature that a log can carry."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.oracle import Oracle


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make a table; `{t}` stands for it in the statements."""

    statements: tuple[str, ...]
    #: What to select when two readings of the table are compared.
    columns: tuple[str, ...] = ("*",)
    #: Filters that make readers skip files by statistics and partition values.
    filters: tuple[str, ...] = ("true",)

    def provide(self, oracle: Oracle, path: Path) -> None:
        """Put a copy of the table at `path`; it is made once a session."""
        oracle.provide(self.statements, path, lambda made: self.make(oracle, made))

    def make(self, oracle: Oracle, path: Path) -> None:
        for statement in self.statements:
            oracle.sql(statement.format(t=f"delta.`{path}`"))

    def count_all(self, oracle: Oracle, path: Path) -> dict[str, int]:
        """Count the rows of each filter by looking at every row."""
        counts = ", ".join(f"count_if({where}) AS c{n}" for n, where in enumerate(self.filters))
        return oracle.sql(f"SELECT {counts} FROM delta.`{path}`")[0]

    def count_found(self, oracle: Oracle, path: Path) -> dict[str, int]:
        """Count the rows of each filter as a query does, which skips files."""
        counts = ", ".join(
            f"(SELECT count(*) FROM delta.`{path}` WHERE {where}) AS c{n}"
            for n, where in enumerate(self.filters)
        )
        return oracle.sql(f"SELECT {counts}")[0]


def without_commits_before(version: int, table: Path, copy: Path) -> Path:
    """Copy a table without its commits before `version`, so that neither they nor caches help."""
    shutil.copytree(table, copy)
    log = copy / "_delta_log"
    for commit in log.glob("*.json"):
        number = commit.name.removesuffix(".json")
        if number.isdigit() and int(number) < version:
            commit.unlink()
            (log / f".{commit.name}.crc").unlink(missing_ok=True)
    # delta-spark would rather take protocol and metadata from these than from a checkpoint.
    for checksum in log.glob("[0-9]*.crc"):
        checksum.unlink()
    return copy


def _create(columns: str, *, properties: str = "", tail: str = "") -> str:
    off = "'delta.checkpointInterval' = '1000'"
    every = f"{off}, {properties}" if properties else off
    return f"CREATE TABLE {{t}} ({columns}) USING delta {tail} TBLPROPERTIES ({every})"


_ROWS = "INSERT INTO {t} SELECT id, concat('name ', id) FROM range(%d, %d, 1, 2)"
_IDS = ("id = 5", "id > 150", "name = 'name 42'", "id < 0")

RECIPES: dict[str, Recipe] = {
    "deletion_vectors": Recipe(
        statements=(
            _create("id BIGINT, name STRING", properties="'delta.enableDeletionVectors' = 'true'"),
            _ROWS % (0, 200),
            "DELETE FROM {t} WHERE id % 7 = 0",
            "DELETE FROM {t} WHERE id % 11 = 0",
        ),
        filters=_IDS,
    ),
    "column_mapping_by_name": Recipe(
        statements=(
            _create(
                "id BIGINT, name STRING, gone INT",
                properties="'delta.columnMapping.mode' = 'name'",
            ),
            "INSERT INTO {t} SELECT id, concat('name ', id), 1 FROM range(0, 100, 1, 2)",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} RENAME COLUMN name TO `a, new name`",
            "INSERT INTO {t} SELECT id, concat('name ', id) FROM range(100, 200)",
        ),
        filters=("id = 5", "`a, new name` = 'name 42'"),
    ),
    "column_mapping_by_id": Recipe(
        statements=(
            _create(
                "id BIGINT, name STRING, p INT",
                properties="'delta.columnMapping.mode' = 'id'",
                tail="PARTITIONED BY (p)",
            ),
            "INSERT INTO {t} SELECT id, concat('name ', id), id % 3 FROM range(0, 100)",
            "ALTER TABLE {t} RENAME COLUMN p TO q",
        ),
        filters=("id = 5", "q = 1", "q IS NULL"),
    ),
    "row_tracking_clustering_and_in_commit_timestamps": Recipe(
        statements=(
            _create(
                "id BIGINT, name STRING",
                properties="'delta.enableRowTracking' = 'true',"
                " 'delta.enableInCommitTimestamps' = 'true'",
                tail="CLUSTER BY (id)",
            ),
            _ROWS % (0, 200),
            "OPTIMIZE {t}",
            "UPDATE {t} SET name = 'other' WHERE id = 7",
        ),
        columns=("*", "_metadata.row_id", "_metadata.row_commit_version"),
        filters=_IDS,
    ),
    "v2_checkpoint": Recipe(
        statements=(
            _create(
                "id BIGINT, name STRING",
                properties="'delta.checkpointPolicy' = 'v2',"
                " 'delta.enableDeletionVectors' = 'true'",
            ),
            _ROWS % (0, 200),
            "DELETE FROM {t} WHERE id % 7 = 0",
        ),
        filters=_IDS,
    ),
    "partitions_with_nulls_and_special_characters": Recipe(
        statements=(
            _create(
                "id BIGINT, s STRING, d DATE, at TIMESTAMP, n DECIMAL(12, 2)",
                tail="PARTITIONED BY (s, d, at, n)",
            ),
            (
                "INSERT INTO {t} VALUES"
                " (1, 'a/b c', DATE'2026-02-28', TIMESTAMP'2026-01-01 10:00:00.123456Z', 1.50),"
                " (2, 'ü=%41#?:', DATE'1582-10-01', TIMESTAMP'1969-12-31 23:59:59Z', -0.01),"
                " (3, null, null, null, null),"
                " (4, '', DATE'2026-02-28', TIMESTAMP'2026-01-01 10:00:00Z', 9999999999.99),"
                " (5, '\"quoted\" + plus', DATE'9999-12-31', TIMESTAMP'2026-06-01 00:00:00Z', 0)"
            ),
            "DELETE FROM {t} WHERE id = 5",
        ),
        filters=(
            "s = 'a/b c'",
            "s IS NULL",
            "d = DATE'2026-02-28'",
            "at = TIMESTAMP'2026-01-01 10:00:00.123456Z'",
            "n < 0",
        ),
    ),
    "type_widening": Recipe(
        statements=(
            _create(
                "id INT, n DECIMAL(6, 2), d INT",
                properties="'delta.enableTypeWidening' = 'true'",
            ),
            "INSERT INTO {t} VALUES (1, 10.25, 3), (2, -10.25, 4)",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN n TYPE DECIMAL(20, 5)",
            "ALTER TABLE {t} ALTER COLUMN d TYPE DOUBLE",
            "INSERT INTO {t} VALUES (5000000000, 123456789012345.12345, 0.5)",
        ),
        filters=("id > 2", "n = 10.25", "d > 1"),
    ),
    "statistics_as_struct_only": Recipe(
        statements=(
            _create(
                "id BIGINT, n DECIMAL(38, 10), s STRUCT<x: INT, at: TIMESTAMP>, f DOUBLE, day DATE,"
                " z TIMESTAMP_NTZ, flag BOOLEAN, bytes BINARY, list ARRAY<INT>, text STRING",
                properties="'delta.checkpoint.writeStatsAsStruct' = 'true',"
                " 'delta.checkpoint.writeStatsAsJson' = 'false'",
            ),
            (
                "INSERT INTO {t} SELECT 1, 1234567890123456789012345678.0123456789,"
                " named_struct('x', 1, 'at', TIMESTAMP'2026-01-01 00:00:00.123456Z'), 0.1,"
                " DATE'2026-01-01', TIMESTAMP_NTZ'2026-01-01 00:00:00.999999', true, X'00ff',"
                " array(1, 2), repeat('é', 60)"
            ),
            "INSERT INTO {t} SELECT 2, -1, null, double('NaN'), null, null, null, null, null, null",
            (
                "INSERT INTO {t} SELECT 3, 5, named_struct('x', null, 'at', null), -0.0,"
                " DATE'0001-01-01', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', false, X'',"
                " array(), ''"
            ),
        ),
        filters=(
            "n > 1234567890123456789012345678",
            "s.x = 1",
            "s.at >= TIMESTAMP'2026-01-01 00:00:00.123456Z'",
            "f > 1",
            "day < DATE'1000-01-01'",
            "z >= TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
            "text > 'éé'",
            "text IS NULL",
        ),
    ),
}
