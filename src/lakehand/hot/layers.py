"""Changes in memory above a version of the cold table; readers see each change at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.hot.hot_snapshot import HotSnapshot, collapse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.hot.cold import ColdView
    from lakehand.hot.segments import Entry


@dataclass(kw_only=True, slots=True, eq=False)
class Memtable:
    """The changes of one epoch. Entries are replaced as a whole, never changed in place.

    Readers keep the tuple that they read: old versions of rows are freed with their last reader.
    """

    epoch: int
    entries: tuple[Entry, ...] = ()
    #: How many of the entries, from the first, are merged.
    merged_count: int = 0
    #: Rows and deleted keys; older versions count until they are merged.
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
        # In one step: an interrupt leaves all of them changed or none.
        self.entries, self.rows, self.bytes, self.since = together, rows, size, since

    @property
    def unmerged_changes(self) -> int:
        """Entries that were not merged yet."""
        return len(self.entries) - self.merged_count

    def replace(self, merged: Sequence[Entry], count: int) -> int:
        """Let `merged` stand for the first `count` entries, and return the memory that frees."""
        before, together = self.bytes, (*merged, *self.entries[count:])
        rows = sum(entry.rows.num_rows for entry in together)
        size = sum(entry.bytes for entry in together)
        self.entries, self.merged_count, self.rows, self.bytes = together, len(merged), rows, size
        return before - size


class Layers:
    """The memtables of one hot table, the oldest first; the last one takes changes."""

    def __init__(
        self,
        view: ColdView,
        memtables: Sequence[Memtable],
        *,
        key: tuple[str, ...],
        sequence: int,
        on_freed: Callable[[int], None],
    ) -> None:
        """`on_freed` is told how much memory is free again."""
        self._view = view
        self._memtables = list(memtables)
        self._key = key
        self._sequence = sequence
        self._on_freed = on_freed
        self._lock = threading.Lock()
        self._merging = threading.Lock()

    @property
    def view(self) -> ColdView:
        return self._view

    @property
    def sequence(self) -> int:
        return self._sequence

    @property
    def memtables(self) -> tuple[Memtable, ...]:
        with self._lock:
            return tuple(self._memtables)

    @property
    def frozen(self) -> tuple[Memtable, ...]:
        """Memtables that take no changes any more, and wait to be in the cold table."""
        return self.memtables[:-1]

    @property
    def active(self) -> Memtable:
        return self.memtables[-1]

    def publish(self, entries: Sequence[Entry], *, epoch: int | None, now: float) -> None:
        """Make changes visible, all at once, and once: it may be called again with the same.

        `epoch` is the one that they are of in the log; None: there is no log.
        """
        with self._lock:
            self._reach(epoch)
            active, newest = self._memtables[-1], entries[-1].sequence
            if not active.entries or active.entries[-1].sequence < newest:
                active.add(entries, now=now)
            self._sequence = newest

    def freeze(self, next_epoch: int) -> None:
        """Begin another memtable. No change is published at the same time."""
        with self._lock:
            self._reach(next_epoch)

    def _reach(self, epoch: int | None) -> None:
        # Who freezes may be interrupted after the log has gone to the next epoch.
        if epoch is not None and self._memtables[-1].epoch < epoch:
            self._memtables.append(Memtable(epoch=epoch))

    def settle(self, view: ColdView, *, flushed: Memtable | None = None) -> int:
        """Show a version of the cold table from now on, without what was flushed into it.

        Returns the memory that this frees.
        """
        with self._lock:
            if view.snapshot.version >= self._view.snapshot.version:
                self._view = view
            if flushed is None:
                return 0
            self._memtables.remove(flushed)
            freed = flushed.bytes
        self._on_freed(freed)
        return freed

    def snapshot(self) -> HotSnapshot:
        with self._lock:
            # An epoch that has not ended was committed by another writer, by mistake.
            active = self._memtables[-1]
            entries = [
                entry
                for memtable in self._memtables
                if memtable is active or memtable.epoch > self._view.epoch
                for entry in memtable.entries
            ]
            return HotSnapshot(self._view, entries, key=self._key, sequence=self._sequence)

    def merge(self, memtable: Memtable) -> tuple[Entry, ...]:
        """Merge the changes of a memtable, by their newest versions, and return them.

        Snapshots that were taken before keep what they had.
        """
        with self._merging:
            entries = memtable.entries
            if len(entries) <= memtable.merged_count:
                return entries
            merged = collapse(entries, self._key)
            with self._lock:
                # If it was flushed since, its memory is accounted for.
                is_here = any(memtable is known for known in self._memtables)
                freed = memtable.replace(merged, len(entries)) if is_here else 0
        self._on_freed(freed)
        return merged
