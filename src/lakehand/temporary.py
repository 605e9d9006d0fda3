"""Temporary directories of this machine, which do not outlive a killed process for long.

A process that uses a directory holds a lock on it, which the system releases however the process
ends. DuckDB creates its directories by itself and only when it spills: their names tell the
process. Each call that creates a directory deletes those of processes that are gone.

The directories hold rows of tables: other users of the machine can neither list nor enter them.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import stat
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import TYPE_CHECKING, Literal
from uuid import uuid4
from zlib import crc32

from lakehand.errors import StoreQuotaError

if TYPE_CHECKING:
    from collections.abc import Iterator

Purpose = Literal["exchange", "log", "rehearsal", "scan"]

_LOCKED: tuple[Purpose, ...] = ("exchange", "log", "rehearsal", "scan")
_SPILLED = "lakehand-spill-"
#: Age of a directory without a lock: its creator may be about to lock it.
_ABANDONED_SECONDS = 60
#: Place of a process's start in /proc/<pid>/stat, behind the name, which may have spaces.
_STARTED = 19
#: Modes: of directories that hold rows, and bits that these do not have.
_PRIVATE, _OF_OTHERS = 0o700, 0o077


@contextmanager
def scratch_errors(path: Path | str, failure: str) -> Iterator[None]:
    """Raise StoreQuotaError, which says `failure`, if a scratch file at `path` cannot be written.

    Mostly the disk is full; the reason of the system is in the message.
    """
    try:
        yield
    except OSError as error:
        where = f" in {Path(path).parent}" if path else ""
        raise StoreQuotaError(
            f"{failure}{where}: {error.strerror or error}",
            path=str(path),
            operation="put",
            hint="free some space there, or set scratch_directory or TMPDIR to another disk",
        ) from error


def scratch_root(parent: str | None) -> str:
    """Return `parent`, else the temporary directory of the system.

    Python looks for one in which it can write a file, so on a full disk it finds none.
    """
    with scratch_errors("", "no temporary directory can be used"):
        return parent or gettempdir()


@contextmanager
def held_directory(
    parent: str | None, *, purpose: Purpose, removes_abandoned: bool = True
) -> Iterator[str]:
    """Create a directory for the block, and remove those of killed processes."""
    root, prefix = Path(scratch_root(parent)), f"lakehand-{purpose}-"
    if removes_abandoned:
        _remove_abandoned(root)
    with scratch_errors(root / prefix, "no scratch directory can be created"):
        # A cancelled task may still write for a moment, which must not hide the original error.
        made = TemporaryDirectory(prefix=prefix, dir=root, ignore_cleanup_errors=True)
    with made as directory, ExitStack() as held:
        # On a file system without locks nothing is locked, so nothing is removed.
        with suppress(OSError):
            held.enter_context(_locked(Path(directory)))
        yield directory


@contextmanager
def held_spill_directory(parent: str | None) -> Iterator[str]:
    """Create a directory for what DuckDB spills in the block: its own would be open to all."""
    place = Path(f"{spill_prefix(parent)}{uuid4().hex}")
    with suppress(OSError):  # a full disk: DuckDB says so if it has to write
        place.mkdir(_PRIVATE)
    try:
        yield str(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def user_directory() -> str:
    """Return a directory that only this user can enter, which stays: for databases that do, too.

    Its name is known in advance, so another user may have taken it: then it is a new one.
    """
    place = _user_directory(Path(_temporary_root()))
    with suppress(OSError):
        place.mkdir(_PRIVATE)
    return str(place) if _is_private(place) else _new_user_directory(os.getpid(), place)


def _user_directory(root: Path) -> Path:
    return root / f"lakehand-{os.geteuid()}"


def _is_private(place: Path) -> bool:
    try:
        found = place.lstat()
    except OSError:  # it cannot be created, nor can another one
        return True
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not found.st_mode & _OF_OTHERS


@lru_cache(maxsize=1)
def _new_user_directory(_pid: int, place: Path) -> str:
    return mkdtemp(prefix=f"{place.name}-", dir=place.parent)


def spill_prefix(parent: str | None) -> str:
    """Return how names begin of directories to which DuckDB may spill in this process."""
    return f"{parent or _temporary_root()}/{_SPILLED}{_process_mark(os.getpid())}-"


def _temporary_root() -> str:
    try:
        return gettempdir()
    except FileNotFoundError:  # a full disk
        return os.environ.get("TMPDIR", "/tmp")  # noqa: S108


def _remove_abandoned(root: Path) -> None:
    for purpose in _LOCKED:
        for directory in root.glob(f"lakehand-{purpose}-*"):
            with suppress(OSError):  # in use, owned by another user, or deleted
                is_old = directory.stat().st_mtime < time.time() - _ABANDONED_SECONDS
                if is_old:
                    with _locked(directory):
                        shutil.rmtree(directory, ignore_errors=True)
    own = _user_directory(root)
    for directory in (*root.glob(f"{_SPILLED}*"), *own.glob(f"{_SPILLED}*")):
        if _is_of_ended_process(directory.name.removeprefix(_SPILLED)):
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; BlockingIOError if another process has it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@lru_cache(maxsize=1)
def _process_mark(pid: int) -> str:
    """Return what no other process has: the numbers of a process and its namespace, its start."""
    return f"{_namespace()}-{pid}-{_started(pid) or 0}"


def _is_of_ended_process(name: str) -> bool:
    """Return whether the process in a name is certain to have ended. Others are left alone."""
    namespace, _, rest = name.partition("-")
    pid, _, rest = rest.partition("-")
    started = rest.partition("-")[0]
    if not (namespace == _namespace() != "0" and pid.isdecimal() and started.isdecimal()):
        return False
    return started != "0" and _started(int(pid)) != started


def _namespace() -> str:
    """Return the number of the PID namespace: in another one the same PID is another process.

    Machines may share a disk, and the number of their first namespace is the same on all.
    """
    try:
        number = Path("/proc/self/ns/pid").stat().st_ino
        return f"{number}{crc32(platform.node().encode()):08x}"
    except OSError:  # not Linux
        return "0"


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[_STARTED]
