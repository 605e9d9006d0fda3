"""What a version of a dataset says apart from its fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["LanceState"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LanceState:
    """A version of a dataset, without its fragments."""

    version: int
    #: Version of the file format that new files are written in.
    storage_version: str
    #: Whether rows keep their ids when they move.
    has_stable_row_ids: bool
    #: Whether files lie outside of the root, as those of a shallow clone do.
    has_other_bases: bool
    #: Names of the indices.
    indices: tuple[str, ...]
    #: Numbers of the fragments that each part of an index knows, by the part's id.
    covered: Mapping[str, frozenset[int]]
    #: The same by the name of the index.
    known: Mapping[str, frozenset[int]]
    #: Columns that a commit under way adds to this version; None: none.
    added: pa.Schema | None = None

    def coverage(self, fragment: int) -> str:
        """Return what tells fragments apart that not the same parts of indices know."""
        return ",".join(sorted(part for part, known in self.covered.items() if fragment in known))
