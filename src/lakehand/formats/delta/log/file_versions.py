"""Which commit brought a file into the table, as far as the log still tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.formats.delta.log.discovery import ReplayedFile
from lakehand.formats.delta.log.file_members import decoded_path
from lakehand.formats.delta.log.files import open_log_files
from lakehand.formats.delta.log.lines import gather_lines
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.parquet.database import connect

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["file_versions"]

# An entry that a commit replaces by another of the same file, or refreshes without replacing
# anything, did not bring the file.
_FIRST_ADDS = """
WITH added AS MATERIALIZED (
    SELECT version, {path} AS path, coalesce((add->>'$.dataChange')::BOOLEAN, true) AS is_change
    FROM {lines} WHERE add IS NOT NULL
), removed AS MATERIALIZED (
    SELECT DISTINCT version, {removed_path} AS path FROM {lines} WHERE remove IS NOT NULL
), brought AS (
    SELECT path, min(version) AS version
    FROM added ANTI JOIN removed USING (version, path)
    WHERE is_change OR version IN (SELECT version FROM removed)
    GROUP BY path
)
SELECT brought.version FROM wanted LEFT JOIN brought USING (path) ORDER BY number
"""


def file_versions(store: Store, paths: pa.ChunkedArray, *, until: int) -> pa.Array:
    """Return the version that first added each file; null where that commit is gone.

    All commits are read that are there, whatever checkpoint stands in for them: the answer must not
    depend on who folded the log and when.
    """
    listing = list_log(store)
    commits = [
        ReplayedFile(version=version, key=commit_key(version), bytes=listing.commit_bytes[version])
        for version in sorted(listing.commits)
        if version <= until
    ]
    if not commits:
        return pa.nulls(len(paths), pa.int64())
    numbers = pa.array(range(len(paths)), pa.int64())
    with open_log_files(store) as files, connect() as connection:
        lines = gather_lines(store, files, commits).relation({"add": "JSON", "remove": "JSON"})
        connection.register("wanted", pa.table({"number": numbers, "path": paths}))
        query = _FIRST_ADDS.format(
            lines=lines,
            path=decoded_path("json_extract_string(add, '$.path')"),
            removed_path=decoded_path("json_extract_string(remove, '$.path')"),
        )
        return connection.sql(query).to_arrow_table().column(0).combine_chunks()
