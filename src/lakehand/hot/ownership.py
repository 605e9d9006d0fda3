"""Ownership: one process per log directory, one hot table with a key per table."""

from __future__ import annotations

import fcntl
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

from lakehand import errors
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.quantities import parse_local_path
from lakehand.observe import get_logger, log_event
from lakehand.storage.local_files import TemporaryFile, make_directory, translated

if TYPE_CHECKING:
    from lakehand.storage import Store

_logger = get_logger(__name__)

# The directory of a log

_LOCK = "lock"
_MANIFEST = "hot.json"
_FORMAT = 1


def log_directory(path: str | Path | None, *, field: str) -> Path | None:
    """Return where a log is kept; ValidationError if it is a URL of anything but a local disk."""
    if path is None:
        return None
    try:
        return Path(parse_local_path(path)).absolute()
    except ValueError as error:
        raise errors.ValidationError(
            f"the log of a hot table cannot be kept there: {error}",
            field=field,
            value=str(path),
            hint="a log is synced with every change, which object stores cannot do; give a"
            " directory on a local disk",
        ) from error


class DirectoryLock:
    """Held by one process at a time; the system releases it when the process ends."""

    def __init__(self, directory: Path) -> None:
        """Create the directory, if needed, and lock it; HotLogLockedError if it is locked."""
        path = str(directory / _LOCK)
        with translated("put", path):
            # It holds rows, and has one user.
            make_directory(str(directory), mode=0o700)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise errors.HotLogLockedError(
                f"the log {directory} is open already, here or in another process",
                path=str(directory),
                hint="one process at a time has a log open; give each its own directory",
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a log is for. It never changes while the log exists."""

    #: URL of the table.
    table: str
    #: What tells the table from one that was created later at the same place.
    table_id: str | None
    #: The name under which the log's epochs are in the table.
    writer_id: str
    #: Columns by which the newest row wins; empty: all rows count.
    key: tuple[str, ...]
    #: What tells the log from others of the same name; None where no other has made up the same.
    log_id: str | None = None

    @classmethod
    def of(cls, text: bytes, path: Path) -> Self:
        try:
            document = parse_object(text)
            if document.get("format") == _FORMAT:
                return read_value(cls, document)
        except DocumentError as error:
            raise _unreadable(path) from error
        raise _unreadable(path)


def claim(
    directory: Path,
    *,
    table: str,
    table_id: str | None,
    key: tuple[str, ...],
    writer_id: str | None,
) -> Manifest:
    """Return what the log in `directory` is for; a new one is for what is asked for.

    HotLogError if it is the log of another table, ValidationError if of another key or writer.
    """
    path = directory / _MANIFEST
    if not path.exists():
        _require_no_segments(directory, path)
        manifest = Manifest(
            table=table,
            table_id=table_id,
            writer_id=writer_id or new_writer_id(),
            key=key,
            log_id=uuid.uuid4().hex if writer_id else None,
        )
        _write(path, manifest)
        return manifest
    with translated("get", str(path)):
        manifest = Manifest.of(path.read_bytes(), path)
    if manifest.table_id != table_id:
        raise errors.HotLogError(
            f"the log {directory} is of the table that was at {manifest.table}, and not of the one"
            f" that is at {table} now",
            path=str(directory),
            hint="nothing was changed; bring the table back, or begin with an empty directory",
        )
    _require("key", manifest.key, key, directory)
    _require("writer_id", manifest.writer_id, writer_id or manifest.writer_id, directory)
    return manifest


def _require_no_segments(directory: Path, path: Path) -> None:
    """Raise HotLogError if there are segments without the writer id that they belong to."""
    with translated("list", str(directory)):
        if any(directory.glob("*.wal")):
            raise _unreadable(path)


def new_writer_id() -> str:
    return f"hot-{uuid.uuid4().hex}"


def _require(field: str, there: object, asked: object, directory: Path) -> None:
    if there != asked:
        message = f"the log {directory} was begun with the {field} {there!r}, and not {asked!r}"
        raise errors.ValidationError(message, field=field, value=asked)


def _write(path: Path, manifest: Manifest) -> None:
    text = json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1)
    with translated("put", str(path)):
        file = TemporaryFile(str(path))
        try:
            file.write(memoryview(text.encode()))
            file.replace_target()
        except BaseException:
            file.remove()
            raise


def _unreadable(path: Path) -> errors.HotLogError:
    return errors.HotLogError(
        f"{path} does not say which table its log is of, or is of another version of lakehand",
        path=str(path),
        hint="nothing was changed; restore it from a copy",
    )


# The record of the owner, in the table's directory

_KEY = "_lakehand/hot/owner.json"
_TAKEN = "_lakehand/hot/taken"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The hot table that a record names."""

    #: Tells the hot table from others: the same one for a log each time that it is opened.
    identity: str
    writer_id: str
    #: Its log directory; None: unflushed changes are lost with the process.
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
    """The record of one hot table, in its table's directory."""

    store: Store
    owner: Owner
    #: The owner before this hot table was opened, once it was read; None: there was none.
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
            self._create()  # the record was deleted
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
        raise errors.HotTableTakenError(
            f"another hot table has taken {url} over: the changes of {self.owner.writer_id!r} that"
            " are not in the table are older than newer rows of the table",
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
        except errors.LakehandError as error:
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
        except errors.ObjectExistsError:
            there = self._read()
            if there is None or there.identity != self.owner.identity:
                raise self._taken(there) from None

    def _content(self, owner: Owner) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(owner)}, indent=1).encode()

    def _read(self) -> Owner | None:
        try:
            content = self.store.get(_KEY)
        except errors.ObjectNotFoundError:
            return None
        try:
            document = parse_object(content)
            if document.pop("format", None) == _FORMAT:
                return read_value(Owner, document)
        except DocumentError:
            pass
        raise errors.HotTableTakenError(
            f"{_KEY} of {self.store.url} says nothing that this version of lakehand can read",
            table=self.store.url,
            hint="nothing was changed; if no other hot table writes to this table, delete it",
        )

    def _taken(self, there: Owner | None) -> errors.HotTableTakenError:
        other = "one that was opened just now" if there is None else there.described()
        return errors.HotTableTakenError(
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
