"""How a format tells its own files from everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataNames"]


class DataNames(Protocol):
    """Tells files of rows from everything else in a table's root."""

    @property
    def first_to_go(self) -> str | None:
        """Directory of files that name others: without these nobody looks for those any more."""
        ...

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether it can be a file of rows, or belongs to one."""
        ...

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        ...
