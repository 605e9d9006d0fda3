"""Leases of writer ids: of all sinks that use an id, the one opened last may commit.

The table itself prevents that an epoch is written twice. But a second writer that was given the
same id by mistake would find its first epochs in the table, and drop rows that the table lacks. So
each sink stores a lease in the table's directory when it begins, and checks before each commit that
its lease is still the newest.

_lakehand/writers/<writer id>/<number>-<session>.json, both hashed: the greatest name counts

Each sink writes its own lease only, so of any number that begin at once exactly one has the
greatest name. A commit of the sink before it may be on its way at that moment, and land after the
new one has read the table: the new one then lacks an epoch, and could commit nothing. So it says in
its lease up to which epoch it has seen the table, and a sink that has committed a later one takes
the lease back.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lakehand.errors import ObjectNotFoundError, WriterCollisionError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock

if TYPE_CHECKING:
    from lakehand.storage import Store

_logger = get_logger(__name__)
_DIRECTORY = "_lakehand/writers"
_NAME = re.compile(r"[0-9]{12}-[0-9a-f]{32}\.json")
#: How many crashed sinks a lease names at most.
_MOST_EARLIER = 100
#: How long a sink that has just begun is given to say what it has seen of the table.
_LOOKS, _LOOK_SECONDS = 40, 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class _LeaseRecord:
    """The stored lease of one sink."""

    writer_id: str
    session: str
    #: Sinks before it that did not end well, and may have left files.
    earlier: tuple[str, ...] = ()
    #: Whether it has ended, and left nothing.
    has_ended: bool = False
    #: Whether it has read the table since it put up the lease, and the newest epoch it found.
    has_looked: bool = True
    seen: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterLease:
    """The lease of one sink under its writer id."""

    store: Store
    writer_id: str
    session: str

    @property
    def _directory(self) -> str:
        return f"{_DIRECTORY}/{_hashed(self.writer_id)}"

    def acquire(self, *, seen: int | None = None) -> tuple[frozenset[str], bool]:
        """Acquire the lease of the writer id for this sink.

        `seen` is the newest epoch that it has found in the table. Returns the sinks before it that
        did not end well, and may have left files; and whether another one had the lease, so that
        the table has to be read again: call `note_seen` then.
        """
        earlier: frozenset[str] = frozenset()
        is_another = False
        for _ in range(_LOOKS):
            newest = self._newest()
            if newest is not None and self._is_own(newest):
                break
            found = self._read(newest) if newest is not None else None
            is_another |= newest is not None
            if found is not None:
                earlier |= {*found.earlier, found.session} - {self.session}
                earlier -= {found.session} if found.has_ended else set()
            own = self._own(earlier=tuple(sorted(earlier)[:_MOST_EARLIER]), seen=seen)
            number = 0 if newest is None else _number(newest)
            self._put(number + 1, replace(own, has_looked=not is_another))
        self._delete_others()
        return earlier, is_another

    def note_seen(self, epoch: int | None) -> None:
        """Say that this sink has read the table after `acquire`, and found this epoch there."""
        self._update(has_looked=True, seen=epoch)

    def forget_earlier(self) -> None:
        """Record that the files of the sinks before this one are deleted."""
        self._update(earlier=())

    def release(self) -> None:
        """Record that this sink has ended, and left no files."""
        self._update(has_ended=True)

    def claim(self) -> None:
        """Acquire the lease if it is free; WriterCollisionError if another session has it.

        For a session that lasts: that of a stream, which its checkpoint keeps over all restarts.
        """
        if not self.check():
            self._put(1, self._own())
            self.check()

    def check(self, *, committed: int | None = None, clock: Clock | None = None) -> bool:
        """Say whether a lease is stored; WriterCollisionError if it is another sink's.

        `committed` is the newest epoch that this sink has committed: from a sink that has not seen
        it the lease is taken back.
        """
        newest = self._newest()
        if newest is None:
            # The leases were deleted: the next sink that is opened acquires a new one.
            return False
        if self._is_own(newest):
            return True
        if committed is not None and self._has_missed(newest, committed, clock or SystemClock()):
            self.acquire()
            self.note_seen(committed)
            return self.check()
        raise WriterCollisionError(
            f"another process has opened a sink, or started another stream, on {self.store.url}"
            f" under the writer id {self.writer_id!r}",
            table=self.store.url,
            writer_id=self.writer_id,
            hint="nothing of this epoch was committed; give each writer a unique id, and"
            " let only one process at a time use it; a stream with a new checkpoint is a new"
            " writer",
        )

    def _has_missed(self, key: str, committed: int, clock: Clock) -> bool:
        """Say whether the sink of a lease read the table before `committed` was in it."""
        for _ in range(_LOOKS):
            lease = self._read(key)
            if lease is None or lease.has_looked:
                return lease is not None and (lease.seen is None or lease.seen < committed)
            clock.sleep(_LOOK_SECONDS)
        return False

    def _own(self, **members: object) -> _LeaseRecord:
        own = _LeaseRecord(writer_id=self.writer_id, session=self.session)
        return replace(own, **members)  # type: ignore[arg-type]

    def _update(self, **members: object) -> None:
        """Update the own lease, unless another one is newer."""
        newest = self._newest()
        if newest is not None and self._is_own(newest):
            known = self._read(newest) or self._own()
            self._put(_number(newest), replace(known, **members))  # type: ignore[arg-type]

    def _put(self, number: int, lease: _LeaseRecord) -> None:
        key = f"{self._directory}/{number:012d}-{_hashed(self.session)}.json"
        self.store.put(key, json.dumps(asdict(lease)).encode())

    def _newest(self) -> str | None:
        """Return the key of the lease that counts."""
        return max(self._keys(), default=None)

    def _keys(self) -> list[str]:
        listed = (info.key for info in self.store.list(self._directory))
        return [key for key in listed if _NAME.fullmatch(key.rpartition("/")[2])]

    def _is_own(self, key: str) -> bool:
        return key.endswith(f"-{_hashed(self.session)}.json")

    def _read(self, key: str) -> _LeaseRecord | None:
        """Return what a lease says; None if it is gone, or cannot be read.

        Files of a sink whose lease cannot be read are left to vacuum.
        """
        try:
            return read_value(_LeaseRecord, parse_object(self.store.get(key)))
        except ObjectNotFoundError:
            return None
        except DocumentError as error:
            message = "The lease %s of %s cannot be read: %s"
            log_event(
                _logger, logging.WARNING, "lease_unreadable", message, key, self.store.url, error
            )
            return None

    def _delete_others(self) -> None:
        """Delete leases that no longer count."""
        self.store.delete(sorted(self._keys())[:-1])


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])
