"""Changes in memory above a version of the cold table; readers see each change at once."""

from __future__ import annotations

import threading
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from lakehand.hot.hot_snapshot import HotSnapshot, collapse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.hot.cold import ColdView
    from lakehand.hot.segments import Entry


class _Group(NamedTuple):
    """Entries that became visible together, and the sums up to them."""

    entries: Sequence[Entry]
    #: Entries, rows with deleted keys, and bytes of this group and all before it.
    entry_count: int
    rows: int
    bytes: int
    #: When the first of the changes came.
    since: float


def _following(before: _Group | None, entries: Sequence[Entry], now: float) -> _Group:
    rows, size = sum(e.rows.num_rows for e in entries), sum(e.bytes for e in entries)
    if before is None:
        return _Group(entries, len(entries), rows, size, now)
    count = before.entry_count + len(entries)
    return _Group(entries, count, before.rows + rows, before.bytes + size, before.since)


class Memtable:
    """The changes of one epoch. Groups are added and replaced as a whole, never changed.

    Readers keep the entries that they read: old versions of rows are freed with their last reader.
    """

    def __init__(self, *, epoch: int) -> None:
        self.epoch = epoch
        #: Added to by one call, and replaced by one: an interrupt leaves all of it or none.
        self._groups: list[_Group] = []
        #: How many of the entries, from the first, are merged.
        self.merged_count = 0

    def add(self, entries: Sequence[Entry], *, now: float) -> None:
        """Take entries, at least one, which are newer than all others."""
        self._groups.append(_following(self._last, entries, now))

    @property
    def _last(self) -> _Group | None:
        groups = self._groups
        return groups[-1] if groups else None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(chain.from_iterable(group.entries for group in tuple(self._groups)))

    @property
    def sequence(self) -> int:
        """The newest change; 0 if there is none."""
        last = self._last
        return last.entries[-1].sequence if last is not None else 0

    @property
    def rows(self) -> int:
        """Rows and deleted keys; older versions count until they are merged."""
        last = self._last
        return last.rows if last is not None else 0

    @property
    def bytes(self) -> int:
        last = self._last
        return last.bytes if last is not None else 0

    @property
    def since(self) -> float | None:
        """When the oldest of the changes came; None if there are none."""
        last = self._last
        return last.since if last is not None else None

    @property
    def unmerged_changes(self) -> int:
        """Entries that were not merged yet."""
        last = self._last
        return last.entry_count - self.merged_count if last is not None else 0

    def replace(self, merged: Sequence[Entry], count: int) -> int:
        """Let `merged` stand for the first `count` entries, and return the memory that frees."""
        before, since = self.bytes, self.since
        newer = [group.entries for group in self._groups if group.entry_count > count]
        groups: list[_Group] = []
        for entries in (merged, *newer):
            last = groups[-1] if groups else None
            groups.append(_following(last, entries, since or 0.0))
        self._groups, self.merged_count = groups, len(merged)
        return before - self.bytes


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
            if active.sequence < newest:
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
