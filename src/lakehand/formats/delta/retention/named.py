"""What actions name: keys below the root, and files that are named from outside of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.files.deletion_vectors import INLINE, DvDescriptor
from lakehand.formats.delta.log.discovery import LogSegment
from lakehand.formats.delta.log.file_members import decoded_path, line_types
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.protocol.paths import is_absolute
from lakehand.storage.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakehand.formats.delta.log.file_members import FileKind
    from lakehand.formats.delta.log.listing import LogListing
    from lakehand.formats.delta.log.source import LogSource
    from lakehand.storage import Store

__all__ = ["Named"]

_LOOKS_ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"
#: An empty segment, '.' or '..'.
_NOT_NORMAL = r"(^|/)\.{0,2}(/|$)"


#: What might be this file or any other, so that nothing may be deleted.
_LACKS_A_NAME = (
    "path_key IS NULL OR (deletionVector IS NOT NULL AND "
    "(deletionVector.storageType IS NULL OR deletionVector.pathOrInlineDv IS NULL))"
)


class Named:
    """Gathers what actions name: keys below the root, and names of what is named from outside."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: list[pa.ChunkedArray] = []
        self._resolved: list[str] = []
        self._names: set[str] = set()

    def take(self, source: LogSource, query: str) -> None:
        """Take the files of `query`, which has the columns path_key and deletionVector."""
        source.run(f"CREATE OR REPLACE TEMP TABLE named AS {query}")
        if source.run(f"SELECT 1 FROM named WHERE {_LACKS_A_NAME} LIMIT 1"):
            raise source.unusable("it names a file, or a deletion vector, without a path")
        absolute = f"regexp_matches(path_key, '{_LOOKS_ABSOLUTE}')"
        relative = source.stream(f"SELECT DISTINCT path_key FROM named WHERE NOT {absolute}")
        self._keys.append(_checked(relative.read_all()["path_key"]))
        for (path,) in source.run(f"SELECT DISTINCT path_key FROM named WHERE {absolute}"):
            self._take_path(path)
        vectors = source.run(
            "SELECT DISTINCT deletionVector.storageType, deletionVector.pathOrInlineDv FROM named "
            f"WHERE deletionVector IS NOT NULL AND deletionVector.storageType <> '{INLINE}'"
        )
        self._take_vectors(vectors)
        source.run("DROP TABLE named")

    def take_commits(
        self, listing: LogListing, versions: tuple[int, ...], *, kinds: tuple[FileKind, ...]
    ) -> None:
        """Take what these commits name in actions of `kinds`, and their change data."""
        if not versions:
            return
        sizes = {version: listing.commit_bytes[version] for version in versions}
        commits = LogSegment(
            version=versions[-1], checkpoint=None, commits=versions, commit_bytes=sizes
        )
        types = {kind: line_types(kind, ()) for kind in kinds} | {"cdc": "STRUCT(path VARCHAR)"}
        path = decoded_path(f"coalesce({', '.join(f'{kind}.path' for kind in types)})")
        vector = f"coalesce({', '.join(f'{kind}.deletionVector' for kind in kinds)})"
        names_a_file = " OR ".join(f"{kind} IS NOT NULL" for kind in types)
        with open_log_source(self._store, commits) as source:
            self.take(
                source,
                f"SELECT {path} AS path_key, {vector} AS deletionVector "
                f"FROM {source.lines.relation(types)} WHERE {names_a_file}",
            )

    def _take_vectors(self, vectors: Iterable[tuple[str, str]]) -> None:
        for storage_type, text in vectors:
            path = DvDescriptor(
                storage_type=storage_type, path_or_inline=text, size_bytes=0, cardinality=0
            ).path
            if path is not None and is_absolute(path):
                self._take_path(path)
            elif path is not None:
                self._resolved.append(check_key(path))

    def _take_path(self, path: str) -> None:
        """Take an absolute path; one of a store that is unknown here is an error."""
        store, key = self._store.resolve(path)
        if store is self._store:
            self._resolved.append(key)
        self._names.add(key.rpartition("/")[2])

    def keys(self) -> pa.ChunkedArray:
        """Return the keys below the root, distinct."""
        chunks = [chunk.cast(pa.string()) for keys in self._keys for chunk in keys.chunks]
        chunks.append(pa.array(self._resolved, pa.string()))
        return pa.chunked_array([pc.unique(pa.chunked_array(chunks, pa.string()))])

    def names(self) -> pa.ChunkedArray:
        """Return the bare names of files that are named from outside."""
        return pa.chunked_array([pa.array(sorted(self._names), pa.string())])


def _checked(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `keys`; UnsafePathError if a listing would show one of them by another name.

    Some engines read `a//b` as `a/b`. A file that is compared by the wrong name would be garbage.
    """
    suspicious = keys.filter(pc.match_substring_regex(keys, pattern=_NOT_NORMAL))
    for key in suspicious.to_pylist():
        check_key(key)
    return keys
