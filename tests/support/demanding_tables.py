"""Tables of delta-spark that ask much of a rewrite: rare types, old calendars, many features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.featured_tables import FeaturedTable

if TYPE_CHECKING:
    from pathlib import Path

    from support.oracle import Oracle

IDENTITY = ("*", "_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_version")
_LEGACY = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.session.timeZone": "America/Los_Angeles",
}
_SHREDDING = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.inferShreddingSchema": "true",
}
_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_ANCIENT = (
    "SELECT id, concat('n', id) AS name, date_add(DATE'1582-09-01', CAST(id AS INT)) AS day,"
    " timestamp_micros(-12219292800000000 + id * 86400000123 - 2592000000000) AS at,"
    " array(DATE'0001-01-01', DATE'1000-02-28', NULL) AS days FROM range(100)"
)
_ANCIENT_COLUMNS = "id BIGINT, name STRING, day DATE, at TIMESTAMP, days ARRAY<DATE>"


@dataclass(frozen=True, kw_only=True)
class DemandingTable:
    """A table, and how it is made and compared."""

    table: FeaturedTable
    #: Settings of Spark while it is made.
    session: dict[str, str] = field(default_factory=dict)
    #: What is compared, as SQL.
    columns: tuple[str, ...] = ("*",)

    #: Whether the same rows are added once more, under Spark's own settings.
    is_continued: bool = False

    @property
    def name(self) -> str:
        return self.table.name

    def create(self, oracle: Oracle, path: Path) -> None:
        with oracle.configured(self.session):
            self.table.create(oracle, path)
        if self.is_continued and self.table.query is not None:
            oracle.write(path, self.table.query, files=2)


def _ancient(name: str, session: dict[str, str], *, is_continued: bool = False) -> DemandingTable:
    """Return a table of ancient times; as INT96, delta-rs takes them for others of our age."""
    is_int96 = session.get(_TIMESTAMP_TYPE) == "INT96"
    table = FeaturedTable(
        name=name, columns=_ANCIENT_COLUMNS, query=_ANCIENT, delta_rs_reads=not is_int96
    )
    return DemandingTable(table=table, session=session, is_continued=is_continued)


def _variants(name: str, session: dict[str, str]) -> DemandingTable:
    """Return a table of variants at every place; with `session` they are shredded where it can."""
    is_shredded = {"delta.enableVariantShredding": "true"} if session else {}
    table = FeaturedTable(
        name=name,
        columns="id BIGINT, v VARIANT, s STRUCT<v: VARIANT>, l ARRAY<VARIANT>,"
        " m MAP<STRING, VARIANT>",
        query="SELECT id, IF(id % 3 = 0, NULL, parse_json(concat('{\"a\": [', id, ', 1.5],"
        ' "b": {"c": "x\', id, \'", "odd\', id DIV 10 % 2, \'": null}, "d": \', id % 5 = 0,'
        " '}'))) AS v,"
        " CASE id DIV 10 % 4 WHEN 0 THEN NULL WHEN 1 THEN named_struct('v', NULL) ELSE"
        "  named_struct('v', parse_json(IF(id DIV 10 % 4 = 2, '1', '{\"k\": 1e100}'))) END AS s,"
        " CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE"
        "  array(parse_json('\"x\"'), NULL) END AS l,"
        " IF(id % 5 = 0, NULL, map('k', parse_json('{\"in\": [true]}'), '', NULL)) AS m"
        " FROM range(100)",
        properties=is_shredded,
        delta_rs_reads=False,
    )
    columns = ("id", "to_json(struct(v, s, l, m)) AS variants")
    return DemandingTable(table=table, session=session, columns=columns)


DEMANDING_TABLES = (
    _ancient("ancient dates of the new calendar", {}),
    _ancient("ancient dates of the old calendar", _LEGACY),
    _ancient(
        "ancient INT96 of the old calendar",
        {**_LEGACY, _TIMESTAMP_TYPE: "INT96"},
    ),
    _ancient("ancient dates of both calendars", _LEGACY, is_continued=True),
    _ancient("INT96", {_TIMESTAMP_TYPE: "INT96"}),
    _ancient("milliseconds", {_TIMESTAMP_TYPE: "TIMESTAMP_MILLIS"}),
    DemandingTable(
        table=FeaturedTable(
            name="nested types",
            columns="id BIGINT, s STRUCT<a: STRUCT<x: DECIMAL(38, 18), y: ARRAY<STRING>>, b: DATE>,"
            " l ARRAY<STRUCT<k: STRING, v: ARRAY<DOUBLE>>>, m MAP<STRING, STRUCT<z: TIMESTAMP>>,"
            " mm MAP<INT, MAP<STRING, ARRAY<INT>>>, bytes BINARY, f FLOAT, d DOUBLE",
            query="SELECT id,"
            " CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN named_struct('a', NULL, 'b', NULL)"
            "  ELSE named_struct('a', named_struct('x', CAST(id AS DECIMAL(38, 18)), 'y',"
            "   IF(id % 4 = 2, array(), array('', NULL))), 'b', DATE'2026-01-01') END AS s,"
            " CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array(NULL,"
            "  named_struct('k', '', 'v', array(-0.0D, double('NaN'), NULL))) END AS l,"
            " CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN map() ELSE map('k',"
            "  named_struct('z', TIMESTAMP'2026-01-01 00:00:00.123456Z'), '', NULL) END AS m,"
            " IF(id % 2 = 0, NULL, map(1, map('a', array(1, NULL)), 2, map())) AS mm,"
            " IF(id % 5 = 0, NULL, unhex('00ff')) AS bytes,"
            " CAST(IF(id % 2 = 0, -0.0, 0.0) AS FLOAT) AS f,"
            " IF(id % 7 = 0, double('NaN'), double('-Infinity')) AS d FROM range(100)",
        ),
    ),
    _variants("variant", {}),
    _variants("shredded variant", _SHREDDING),
    DemandingTable(
        table=FeaturedTable(
            name="partitions of every type",
            columns="id BIGINT, t STRING, n INT, day DATE, at TIMESTAMP, d DECIMAL(10, 2),"
            " flag BOOLEAN, clock TIMESTAMP_NTZ",
            clause="PARTITIONED BY (t, n, day, at, d, flag, clock)",
            query="SELECT id,"
            " CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a/b =%41 ü' ELSE '' END AS t,"
            " CAST(IF(id % 2 = 0, NULL, -1) AS INT) AS n,"
            " IF(id % 2 = 0, NULL, DATE'1500-01-01') AS day,"
            " IF(id % 2 = 0, NULL, TIMESTAMP'1969-12-31 23:59:59.000001Z') AS at,"
            " CAST(IF(id % 2 = 0, NULL, 1.5) AS DECIMAL(10, 2)) AS d, id % 2 = 0 AS flag,"
            " TIMESTAMP_NTZ'2026-01-01 10:00:00.5' AS clock FROM range(24)",
        ),
    ),
    DemandingTable(
        table=FeaturedTable(
            name="all at once",
            columns="id BIGINT, name STRING, part STRING, s STRUCT<x: INT, y: STRING>",
            clause="PARTITIONED BY (part)",
            properties={
                "delta.columnMapping.mode": "name",
                "delta.enableDeletionVectors": "true",
                "delta.enableRowTracking": "true",
                "delta.enableInCommitTimestamps": "true",
                "delta.enableChangeDataFeed": "true",
                "delta.enableTypeWidening": "true",
                "delta.checkpointPolicy": "v2",
                "delta.feature.vacuumProtocolCheck": "supported",
            },
            query="SELECT id, concat('n', id) AS name, IF(id % 3 = 0, NULL, 'p q') AS part,"
            " named_struct('x', CAST(id AS INT), 'y', NULL) AS s FROM range(100)",
            after=(
                "ALTER TABLE {t} RENAME COLUMN name TO `a new, name`",
                "ALTER TABLE {t} DROP COLUMN s.y",
                "ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT",
                "DELETE FROM {t} WHERE id % 5 = 1",
                "UPDATE {t} SET `a new, name` = 'changed' WHERE id % 7 = 2",
                "INSERT INTO {t} VALUES (1000, 'late', 'p q', named_struct('x', 5000000000))",
            ),
            delta_rs_reads=False,
        ),
        columns=IDENTITY,
    ),
    DemandingTable(
        table=FeaturedTable(
            name="rows moved before",
            properties={"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
            after=(
                "OPTIMIZE {t}",
                "INSERT INTO {t} SELECT id, 'more' FROM range(200, 220, 1, 2)",
                "DELETE FROM {t} WHERE id % 10 = 4",
                "UPDATE {t} SET name = 'changed' WHERE id % 10 = 5",
            ),
        ),
        columns=IDENTITY,
    ),
    DemandingTable(
        table=FeaturedTable(
            name="defaults and lengths",
            columns="id BIGINT, c CHAR(5), v VARCHAR(20), d INT DEFAULT 7",
            properties={"delta.feature.allowColumnDefaults": "supported"},
            query="SELECT id, 'ab' AS c, concat('v', id) AS v, CAST(NULL AS INT) AS d"
            " FROM range(99)",
            after=("INSERT INTO {t} (id) VALUES (1000), (1001)",),
        ),
    ),
    DemandingTable(
        table=FeaturedTable(
            name="void column",
            columns="id BIGINT, v VOID, s STRUCT<a: INT, w: VOID>",
            query=None,
            after=tuple(
                f"INSERT INTO {{t}} SELECT id, NULL, named_struct('a', 1, 'w', NULL)"
                f" FROM range({start}, {start} + 10)"
                for start in (0, 10, 20)
            ),
            delta_rs_reads=False,
        ),
    ),
    DemandingTable(
        table=FeaturedTable(
            name="widened inside",
            columns="id BIGINT, s STRUCT<x: SHORT>, l ARRAY<INT>, m MAP<STRING, FLOAT>",
            properties={"delta.enableTypeWidening": "true"},
            query="SELECT id, named_struct('x', CAST(id AS SHORT)) AS s, array(1, NULL) AS l,"
            " map('a', CAST(0.1 AS FLOAT)) AS m FROM range(100)",
            after=(
                "ALTER TABLE {t} ALTER COLUMN s.x TYPE INT",
                "ALTER TABLE {t} ALTER COLUMN l.element TYPE BIGINT",
                "ALTER TABLE {t} ALTER COLUMN m.value TYPE DOUBLE",
                (
                    "INSERT INTO {t} VALUES (1000, named_struct('x', 70000), array(5000000000),"
                    " map('b', 0.1D))"
                ),
            ),
            delta_rs_reads=False,
        ),
    ),
)
