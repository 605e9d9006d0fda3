"""Changes in memory, by epoch. What a reader has in hand never changes under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.hot.records import Entry

__all__ = ["Memtable"]


@dataclass(kw_only=True, slots=True, eq=False)
class Memtable:
    """The changes of one epoch. Entries are replaced as a whole, never changed in place.

    Readers keep the tuple that they found: versions of rows that nobody reads any more go with the
    last reader.
    """

    epoch: int
    entries: tuple[Entry, ...] = ()
    #: How many of the entries, from the first, are put together already.
    merged_count: int = 0
    #: Rows and deleted keys, each as often as it was changed and not put together.
    rows: int = 0
    bytes: int = 0
    #: When the oldest of the changes came; None if there are none.
    since: float | None = None

    def add(self, entries: Sequence[Entry], *, now: float) -> None:
        """Take entries, which are newer than all others."""
        together = (*self.entries, *entries)
        rows = self.rows + sum(entry.rows.num_rows for entry in entries)
        size = self.bytes + sum(entry.bytes for entry in entries)
        since = now if self.since is None and together else self.since
        # In one step: who interrupts it finds all of them or none.
        self.entries, self.rows, self.bytes, self.since = together, rows, size, since

    @property
    def delta_count(self) -> int:
        """How many entries are as they came."""
        return len(self.entries) - self.merged_count

    def replace(self, merged: Sequence[Entry], count: int) -> int:
        """Let `merged` stand for the first `count` entries, and return the memory that frees."""
        before, together = self.bytes, (*merged, *self.entries[count:])
        rows = sum(entry.rows.num_rows for entry in together)
        size = sum(entry.bytes for entry in together)
        self.entries, self.merged_count, self.rows, self.bytes = together, len(merged), rows, size
        return before - size
