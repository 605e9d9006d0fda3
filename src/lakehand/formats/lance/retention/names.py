"""Which names in a dataset's root belong to its versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataNames"]

#: Manifests are deleted like data: a version without its files is none. Keys are deleted in their
#: order, so a manifest goes before the data files that it names.
_KNOWN = (
    r"^(data/[^/]+\.lance|_deletions/[^/]+\.(arrow|bin)|_indices/[^/]+/[^/]+"
    r"|_transactions/[^/]+\.txn|_versions/\d+\.manifest)$"
)
_DIRECTORIES = ("data", "_deletions", "_indices", "_transactions", "_versions")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNames:
    """Tells what versions are made of by its keys; everything else is left alone."""

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether a version may be made of it."""
        return pc.match_substring_regex(keys, pattern=_KNOWN)

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        return directory in _DIRECTORIES or directory.startswith("_indices/")
