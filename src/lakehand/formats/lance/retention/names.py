"""Which names in a dataset's root belong to its versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakehand.formats.lance.log.manifests import MANIFESTS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataNames"]

#: Manifests are deleted like data: a version without its files is none. Writers on local disk that
#: are killed leave what they had begun: `.tmp` and six letters, or a name with `#` and a number.
_KNOWN = (
    r"^((data/[^/]+\.lance|data/[^/]+/[^/]+\.blob|_deletions/[^/]+\.(arrow|bin)"
    r"|_transactions/[^/]+\.txn|_versions/\d+\.manifest)(#\d+)?"
    r"|data/\.tmp\w{6}|_indices/[^/]+/[^/]+)$"
)
_DIRECTORIES = ("data", "_deletions", "_indices", "_transactions", "_versions")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNames:
    """Tells what versions are made of by its keys; everything else is left alone."""

    @property
    def first_to_go(self) -> str | None:
        """Manifests: a version that can be opened has all of its files, and may get a tag."""
        return MANIFESTS

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether a version may be made of it."""
        return pc.match_substring_regex(keys, pattern=_KNOWN)

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        return directory in _DIRECTORIES or directory.startswith(("_indices/", "data/"))
