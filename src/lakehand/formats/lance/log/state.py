"""What a version of a dataset says apart from its fragments."""

from __future__ import annotations

from dataclasses import dataclass

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
