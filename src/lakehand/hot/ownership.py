"""Which hot table brings changes by key into a table: one at a time.

Two of them would each hold the newest row of a key for theirs, and the one that flushes last would
win, whatever came last. So the first leaves a record beside the table, and others are refused as
long as it may have changes that are not in the table: until it is closed with nothing left. The
record names a log, and not a process: after a crash the same log goes on under it. No clock says
that it has expired, because the changes in a log do not expire. Who knows that a log is lost takes
the table over; the old hot table finds that out before its next commit, and keeps its changes.

_lakehand/hot/owner.json             who has the table
_lakehand/hot/taken/<hashed>.json    from whom it was taken, and has changes that are given up

The second outlives the first: changes that were given up are older than all that came after them,
also when the one who took the table over has ended.
"""

from __future__ import annotations

import hashlib
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
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["Owner", "Ownership"]

_logger = get_logger(__name__)
_KEY = "_lakehand/hot/owner.json"
_TAKEN = "_lakehand/hot/taken"
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
            process=_process(str(os.getpid())),
        )

    @property
    def is_gone(self) -> bool:
        """Whether its changes are gone for sure, with the process that had them in memory."""
        if self.log is not None or self.process is None or self.machine != _machine():
            return False
        number = self.process.partition("@")[0]
        return number.isdecimal() and _process(number) != self.process

    def described(self) -> str:
        where = "in memory only" if self.log is None else f"with the log {self.log}"
        return f"that of {self.writer_id!r} on the host {self.host}, {where}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ownership:
    """The record of one hot table, beside its table."""

    store: Store
    owner: Owner
    #: The owner before this hot table was opened; None: nobody. Empty as long as it was not asked.
    before: list[Owner | None] = field(default_factory=list)

    def acquire(self, *, takeover: bool) -> None:
        """Write the record; HotTableTakenError if it is another's, unless that is taken over.

        Of one that was taken over all changes are given up, unless it takes the table back.
        """
        there = self._read()
        self.before.append(there)
        is_own = there is not None and there.identity == self.owner.identity
        if not (there is None or is_own or there.is_gone or takeover):
            raise self._taken(there)
        if not (is_own or takeover):
            self._require_not_given_up()
        if there is None:
            self._create()
        else:
            self._replace(there)
        self.store.delete([_mark(self.owner)])

    def check(self) -> None:
        """Raise HotTableTakenError if another hot table has taken the table over."""
        there = self._read()
        if there is None:
            self._require_not_given_up()
            self._create()  # somebody tidied up
        elif there.identity != self.owner.identity:
            raise self._taken(there)

    def _replace(self, there: Owner) -> None:
        """Take the record from another one, whose changes never get into the table then."""
        is_taken = there.identity != self.owner.identity and not there.is_gone
        if is_taken:
            self._give_up(there)
        self.store.put(_KEY, self._content(self.owner))
        if is_taken:
            self._give_up(there)  # it may have been opened in between, and cleared that
        self.check()

    def _give_up(self, other: Owner) -> None:
        self.store.put(_mark(other), self._content(self.owner))

    def _require_not_given_up(self) -> None:
        if not self.store.exists(_mark(self.owner)):
            return
        url = self.store.url
        raise HotTableTakenError(
            f"another hot table has taken {url} over: the changes of {self.owner.writer_id!r} that"
            " are not in the table are older than what came after them",
            table=url,
            path=self.owner.log,
            host=self.owner.host,
            writer_id=self.owner.writer_id,
            hint="nothing was changed; begin with an empty log, or open this one with"
            " takeover=True: its changes then replace newer rows of the same keys",
        )

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

    def restore(self) -> None:
        """Leave the record as it was: this hot table could not be opened."""
        other = next((one for one in self.before if one is not None), None)
        if other is not None and other.identity == self.owner.identity:
            return
        if other is None or other.is_gone:
            if self.before:
                self.release()
            return
        there = self._read()
        if there is not None and there.identity == self.owner.identity:
            self.store.put(_KEY, self._content(other))
            self.store.delete([_mark(other)])

    def _create(self) -> None:
        try:
            self.store.put_if_absent(_KEY, self._content(self.owner))
        except ObjectExistsError:
            there = self._read()
            if there is None or there.identity != self.owner.identity:
                raise self._taken(there) from None

    def _content(self, owner: Owner) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(owner)}, indent=1).encode()

    def _read(self) -> Owner | None:
        try:
            content = self.store.get(_KEY)
        except ObjectNotFoundError:
            return None
        try:
            document = parse_object(content)
            if document.pop("format", None) == _FORMAT:
                return read_value(Owner, document)
        except DocumentError:
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


def _mark(owner: Owner) -> str:
    hashed = hashlib.sha256(owner.identity.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{_TAKEN}/{hashed}.json"


def _machine() -> str | None:
    """Return what tells this set of processes from those of other machines and containers."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return None


def _process(number: str) -> str | None:
    """Return what tells a process from a later one of the same number; None if it has ended."""
    with suppress(OSError, IndexError):
        # The name, which comes before the rest, may hold spaces and brackets.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"{number}@{fields[19]}"
    return None
