"""One row of each key, the latest, as each contender would be asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpch import data_files

__all__ = ["by_delta_rs", "by_delta_spark", "by_duckdb", "by_lakehand"]

_KEY, _ORDER = "id", "moment"


def by_lakehand(table: str, **options: Any) -> dict[str, Any]:
    """Find the rows, take them out, prove and commit it."""
    from lakehand import open_table

    opened = open_table(table, **options)
    return opened.deduplicate(key=[_KEY], keep="latest", order_by=_ORDER).to_json()


def by_delta_spark(spark: Any, table: str, *, way: str) -> dict[str, Any]:
    """`merge` deletes older rows; `overwrite` numbers all rows and writes the first ones anew."""
    spark.sql(_MERGE.format(table=table) if way == "merge" else _OVERWRITE.format(table=table))
    return {}


def by_delta_rs(table: str) -> dict[str, Any]:
    """It has no verb and no window: DuckDB finds the keys, and a merge deletes."""
    import duckdb
    from deltalake import DeltaTable, WriterProperties

    opened = DeltaTable(table)
    newest = duckdb.sql(_NEWEST.format(files=opened.file_uris())).to_arrow_table()
    merge = opened.merge(
        newest,
        f"t.{_KEY} = s.{_KEY} AND t.{_ORDER} < s.newest",
        source_alias="s",
        target_alias="t",
        writer_properties=WriterProperties(compression="SNAPPY"),
    )
    return merge.when_matched_delete().execute()


def by_duckdb(connection: Any, table: str, *, into: Path) -> dict[str, Any]:
    """Number all rows and write the first ones; nothing is checked and no table knows of it."""
    into.mkdir()
    files = [str(path) for path in data_files(Path(table))]
    connection.execute(
        f"COPY (FROM read_parquet({files}) QUALIFY row_number() OVER"
        f" (PARTITION BY {_KEY} ORDER BY {_ORDER} DESC) = 1) TO '{into / 'rows.parquet'}'"
        " (FORMAT parquet, COMPRESSION snappy)"
    )
    return {}


_NEWEST = f"""
SELECT {_KEY}, max({_ORDER}) AS newest FROM read_parquet({{files}})
GROUP BY {_KEY} HAVING count(*) > 1
"""
_MERGE = f"""
MERGE INTO delta.`{{table}}` t USING (
    SELECT {_KEY}, max({_ORDER}) AS newest FROM delta.`{{table}}`
    GROUP BY {_KEY} HAVING count(*) > 1
) s ON t.{_KEY} = s.{_KEY} AND t.{_ORDER} < s.newest
WHEN MATCHED THEN DELETE
"""
_OVERWRITE = f"""
INSERT OVERWRITE delta.`{{table}}`
SELECT * EXCEPT (place) FROM (
    SELECT *, row_number() OVER (PARTITION BY {_KEY} ORDER BY {_ORDER} DESC) AS place
    FROM delta.`{{table}}`
) WHERE place = 1
"""
