"""Put-if-absent by entries in a database, for stores that several kinds of writers share.

The rules are those of delta-spark's multi-cluster log store, so that its writers, and those of
delta-rs that follow it, can commit to the same table. To put version N:

1. Put the content as a temporary object T.
2. Insert the entry (N, T) into the database, unless N has one. Now the version is decided.
3. Copy T to N.
4. Mark the entry as complete.

A writer that finds an incomplete entry does steps 3 and 4 for its owner, after some seconds in
which the owner may do them itself: delta-rs takes a version that was copied for it as lost, and
commits its rows again. For the same reason T is deleted before step 4. The entry is the fence: a
writer that sleeps between two steps and goes on a day later puts the bytes that were decided.
"""

from __future__ import annotations

import copy
import logging
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from lakehand import errors
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached
from lakehand.storage.location import join_key
from lakehand.storage.wrapping_backend import WrappingBackend

if TYPE_CHECKING:
    from lakehand.storage.location import Location
    from lakehand.storage.objects import Backend, ObjectWriter
    from lakehand.storage.retry import RetryPolicy

_logger = get_logger(__name__)
#: How long the writer of an entry may take to finish its put, and how often that is checked.
_OWNER_SECONDS = 5.0
_POLL_SECONDS = 0.05
#: Names of versions, which are never deleted and put again.
_VERSION = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What the database knows about one object."""

    #: URL of the table; for objects that are no versions, of their directory.
    table: str
    name: str
    #: Key of the temporary object, relative to the directory that contains the object.
    temporary: str
    is_complete: bool = False


class CommitEntries(Protocol):
    """A table of entries in a database. Every read is consistent with all earlier writes.

    Raises StoreUnreachableError without an answer of the database. Picklable.
    """

    def insert(self, entry: Entry) -> bool:
        """Insert an entry unless its table and name have one; return whether it was inserted."""
        ...

    def replace(self, old: Entry, new: Entry) -> bool:
        """Replace an entry unless it has changed; return whether it was replaced."""
        ...

    def find(self, table: str, name: str) -> Entry | None: ...

    def latest(self, table: str) -> Entry | None:
        """Return the entry of a table with the greatest name."""
        ...

    def complete(self, entry: Entry) -> None:
        """Mark an entry as complete."""
        ...


class GuardedBackend(WrappingBackend):
    """A store whose versions are put by entries of a database.

    Other objects are put by the store's own put-if-absent if it has one, else by entries as well.
    """

    def __init__(self, inner: Backend, entries: CommitEntries, location: Location) -> None:
        super().__init__(inner)
        self._entries = entries
        self._location = location
        #: The scheme of each table's entries: users of Spark write s3a:// or s3://.
        self._schemes: dict[str, str] = {}
        self._is_conditional = True

    def with_retry(self, policy: RetryPolicy) -> Self:
        backend = copy.copy(self)
        backend.inner = self.inner.with_retry(policy)
        return backend

    def open_writer(self, key: str) -> ObjectWriter:
        return self.inner.open_writer(key)

    def put_if_absent(self, key: str, data: bytes) -> None:
        if _VERSION.fullmatch(_name_of(key)) is None and self._put_natively(key, data):
            return
        self._put_by_entry(key, data)

    def finish_puts(self, directory: str) -> None:
        """Finish the put of the newest version in `directory`, if its writer has not."""
        newest = self._entries.latest(self._table_above(directory))
        if newest is not None and not newest.is_complete:
            self._finish(newest, directory)

    # One put

    def _put_by_entry(self, key: str, data: bytes) -> None:
        directory, name = _directory_of(key), _name_of(key)
        if self._exists(key):
            raise self._taken(key)
        is_version = _VERSION.fullmatch(name) is not None
        table = self._table_above(directory) if is_version else self._url(directory)
        self._require_previous(table, directory, name)
        entry = Entry(table=table, name=name, temporary=f".tmp/{name}.{uuid.uuid4()}")
        temporary = join_key(directory, entry.temporary)
        self.inner.put(temporary, data)
        reached(Step.ENTRY_PREPARED)
        # Without an answer the entry may be there, so the temporary object stays.
        if not self._claim(entry, key):
            self._delete(temporary)
            raise self._taken(key)
        reached(Step.ENTRY_INSERTED)
        try:
            self._copy(entry, directory, data)
        except errors.ObjectExistsError:
            raise
        except errors.StorageError as error:
            if error.retryable:
                raise
            raise self._undecided(key, error) from error

    def _claim(self, entry: Entry, key: str) -> bool:
        """Insert the entry; if there is another one, finish what it says."""
        if self._entries.insert(entry):
            return True
        found = self._entries.find(entry.table, entry.name)
        if found is None:
            raise errors.StoreUnreachableError(
                f"the entry of {key} disappeared", path=key, operation="put-if-absent"
            )
        if found.temporary == entry.temporary:  # the request was repeated on its way
            return True
        if not found.is_complete:
            self._finish(found, _directory_of(key))
            return False
        if self._exists(key):
            return False
        if _VERSION.fullmatch(entry.name):
            raise self._missing(key)
        return self._entries.replace(found, entry)  # it was deleted since

    def _copy(self, entry: Entry, directory: str, data: bytes) -> None:
        """Put the object of an entry, and mark the entry as complete."""
        key = join_key(directory, entry.name)
        try:
            self._create(key, data)
        except errors.ObjectExistsError:
            if self.inner.get(key) != data:
                # Left incomplete, the entry would make others overwrite the object.
                self._entries.complete(entry)
                self._warn_of_other_writer(key)
                raise
        self._delete(join_key(directory, entry.temporary))
        with suppress(errors.StoreUnreachableError):  # then the next writer does it
            self._entries.complete(entry)

    def _finish(self, entry: Entry, directory: str) -> None:
        """Wait for the writer of an entry; then do what is left of its put."""
        if self._is_finished_by_owner(entry):
            return
        key, temporary = (join_key(directory, name) for name in (entry.name, entry.temporary))
        try:
            data = self.inner.get(temporary)
        except errors.ObjectNotFoundError:
            # delta-rs moves the temporary object before it marks the entry.
            if not self._exists(key):
                raise self._missing(key) from None
            self._entries.complete(entry)
            return
        with suppress(errors.ObjectExistsError):
            self._copy(entry, directory, data)
        message = "finished the put of %s, which its writer had left half done"
        log_event(_logger, logging.WARNING, "put_finished", message, self._url(key))

    def _is_finished_by_owner(self, entry: Entry) -> bool:
        until = time.monotonic() + _OWNER_SECONDS
        while time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            found = self._entries.find(entry.table, entry.name)
            if found is None or found.is_complete:
                return True
        return False

    def _require_previous(self, table: str, directory: str, name: str) -> None:
        """Finish the version before `name`: only the newest entry may be incomplete."""
        version = _VERSION.fullmatch(name)
        if version is None or int(version[1]) == 0:
            return
        previous = self._entries.find(table, f"{int(version[1]) - 1:020}.json")
        if previous is not None and not previous.is_complete:
            self._finish(previous, directory)

    # The store

    def _put_natively(self, key: str, data: bytes) -> bool:
        """Put by the store's own put-if-absent; return whether it has that."""
        if self._is_conditional:
            try:
                self.inner.put_if_absent(key, data)
            except errors.ConditionalPutError:
                self._is_conditional = False
        return self._is_conditional

    def _create(self, key: str, data: bytes) -> None:
        """Put an object whose entry is inserted: every writer puts the same bytes."""
        if self._put_natively(key, data):
            return
        if self._exists(key):
            raise self._taken(key)
        self.inner.put(key, data)

    def _exists(self, key: str) -> bool:
        try:
            self.inner.head(key)
        except errors.ObjectNotFoundError:
            return False
        return True

    def _delete(self, key: str) -> None:
        with suppress(errors.StorageError):  # a temporary object that stays does no harm
            self.inner.delete([key])

    # Names

    def _url(self, key: str) -> str:
        return f"{self._location.url}/{key}"

    def _table_above(self, directory: str) -> str:
        """Return the URL of the table of a log, as the writers of its entries spell it."""
        plain = self._url(_directory_of(directory)).rstrip("/")
        if self._location.scheme != "s3":
            return plain
        scheme, bare = self._schemes.get(plain), plain.removeprefix("s3://")
        if scheme is None:
            found = [name for name in ("s3", "s3a") if self._entries.latest(f"{name}://{bare}")]
            if len(found) > 1:
                raise _two_spellings(plain)
            if found:
                [self._schemes[plain]] = found
            scheme = found[0] if found else "s3"
        return f"{scheme}://{bare}"

    # Errors

    def _taken(self, key: str) -> errors.ObjectExistsError:
        path = self._url(key)
        return errors.ObjectExistsError(f"{path} exists", path=path, operation="put-if-absent")

    def _missing(self, key: str) -> errors.StorageError:
        path = self._url(key)
        return errors.StorageError(
            f"{path} has an entry in the table of commits, but neither it nor its temporary object"
            " exists",
            path=path,
            operation="put-if-absent",
            hint="if the table was deleted and is created again, delete its entries first",
        )

    def _undecided(self, key: str, error: errors.StorageError) -> errors.CommitUnknownError:
        return errors.CommitUnknownError(
            f"{self._url(key)} is decided, but could not be put: {error.message}",
            table=self._location.url,
            hint="keep every file of this commit: the next reader or writer finishes it",
        )

    def _warn_of_other_writer(self, key: str) -> None:
        message = "%s was put by a writer that does not use the table of commits: its commits and"
        message += " those of others can overwrite each other"
        log_event(_logger, logging.ERROR, "unguarded_writer", message, self._url(key))


def _two_spellings(url: str) -> errors.RefusedError:
    return errors.RefusedError(
        f"the table of commits has entries of {url} under s3:// and under s3a://: their writers do"
        " not see each other",
        table=url,
        hint="let all writers use one spelling, and delete the entries of the other one",
    )


def _name_of(key: str) -> str:
    return key.rpartition("/")[2]


def _directory_of(key: str) -> str:
    return key.rpartition("/")[0]
