"""Which hot table brings changes by key into a table: one at a time.

Two of them would each hold the newest row of a key for theirs, and the one that flushes last would
win, whatever came last. So the first leaves a record beside the table, and others are refused as
long as it may have changes that are not in the table: until it is closed with nothing left. The
record names a log, and not a process: after a crash the same log goes on under it. No clock says
that it has expired, because the changes in a log do not expire. Who knows that a log is lost takes
the table over; the old hot table finds that out before its next commit, and keeps its changes.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lakehand.errors import (
    HotTableTakenError,
    LakehandError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["Owner", "Ownership"]

_logger = get_logger(__name__)
_KEY = "_lakehand/hot/owner.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """What the record says."""

    #: Tells the hot table from others: the same one for a log each time that it is opened.
    identity: str
    writer_id: str
    #: Its directory; None: what is not in the table goes with the process.
    log: str | None
    host: str
    #: The processes among which `process` is one, and that one; None where the system tells none.
    machine: str | None
    process: str | None

    @classmethod
    def here(cls, *, writer_id: str, log: Path | None) -> Self:
        return cls(
            identity=writer_id if log is not None else uuid.uuid4().hex,
            writer_id=writer_id,
            log=None if log is None else str(log),
            host=socket.gethostname(),
            machine=_machine(),
            process=_process(os.getpid()),
        )

    @property
    def is_gone(self) -> bool:
        """Whether its changes are gone for sure, with the process that had them in memory."""
        if self.log is not None or self.process is None or self.machine != _machine():
            return False
        return _process(int(self.process.partition("@")[0])) != self.process

    def described(self) -> str:
        where = "in memory only" if self.log is None else f"with the log {self.log}"
        return f"that of {self.writer_id!r} on the host {self.host}, {where}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ownership:
    """The record of one hot table, beside its table."""

    store: Store
    owner: Owner
    #: Whether the record was another's, or nobody's, before this hot table was opened.
    is_new: list[bool] = field(default_factory=list)

    def acquire(self, *, takeover: bool) -> None:
        """Write the record; HotTableTakenError if it is another's, unless that is taken over."""
        there = self._read()
        self.is_new.append(there is None or there.identity != self.owner.identity)
        if there is None:
            self._create()
        elif there.identity == self.owner.identity or there.is_gone or takeover:
            self.store.put(_KEY, self._content())
            self.check()
        else:
            raise self._taken(there)

    def check(self) -> None:
        """Raise HotTableTakenError if another hot table has taken the table over."""
        there = self._read()
        if there is None:
            self._create()  # somebody tidied up
        elif there.identity != self.owner.identity:
            raise self._taken(there)

    def release(self) -> None:
        """Let another hot table have the table: nothing is left that is not in it."""
        try:
            there = self._read()
            if there is not None and there.identity == self.owner.identity:
                self.store.delete([_KEY])
        except LakehandError as error:
            message = "%s is still taken by this hot table, and others are refused: %s"
            url, reason = self.store.url, error.message
            log_event(_logger, logging.WARNING, "hot_table_still_taken", message, url, reason)

    def release_if_new(self) -> None:
        """Leave the record as it was: this hot table could not be opened."""
        if any(self.is_new):
            self.release()

    def _create(self) -> None:
        try:
            self.store.put_if_absent(_KEY, self._content())
        except ObjectExistsError:
            there = self._read()
            if there is None or there.identity != self.owner.identity:
                raise self._taken(there) from None

    def _content(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self.owner)}, indent=1).encode()

    def _read(self) -> Owner | None:
        try:
            content = self.store.get(_KEY)
        except ObjectNotFoundError:
            return None
        try:
            document = json.loads(content)
            if document.pop("format") == _FORMAT:
                return Owner(**document)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise HotTableTakenError(
            f"{_KEY} of {self.store.url} says nothing that this version of lakehand can read",
            table=self.store.url,
            hint="nothing was changed; if no other hot table writes to this table, delete it",
        )

    def _taken(self, there: Owner | None) -> HotTableTakenError:
        other = "one that was opened just now" if there is None else there.described()
        return HotTableTakenError(
            f"another hot table brings changes by key into {self.store.url}: {other}",
            table=self.store.url,
            path=None if there is None else there.log,
            host=None if there is None else there.host,
            writer_id=None if there is None else there.writer_id,
            hint="nothing was changed; close the other one, which flushes it, or send the changes"
            " to it; if it and its log are lost, open this one with takeover=True: what the other"
            " has not flushed never gets into the table then",
        )


def _machine() -> str | None:
    """Return what tells this set of processes from those of other machines and containers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return None


def _process(number: int) -> str | None:
    """Return what tells a process from a later one of the same number; None if it has ended."""
    with suppress(OSError, IndexError):
        # The name, which comes before the rest, may hold spaces and brackets.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"{number}@{fields[19]}"
    return None
