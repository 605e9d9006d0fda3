"""What must stay in a table's root, as far as its versions have a say in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Protection"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Protection:
    """The files of every version that must stay readable."""

    #: All files of this version and of every later one are protected ...
    oldest_version: int
    #: ... up to this one, the newest when the log was read.
    newest_version: int
    #: Keys below the root, distinct: data files and everything that belongs to them.
    keys: pa.ChunkedArray
    #: Bare names of files that the table names from outside, by scheme or from the root of a disk.
    #: Such a path may lead back into the table in a way that its text does not show.
    names: pa.ChunkedArray
