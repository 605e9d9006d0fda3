"""What lakehand records of its commits: Lance keeps neither tokens nor proofs of a compaction."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, ObjectNotFoundError, StorageError, VersionNotFoundError
from lakehand.formats.lance.connect import is_lance_failure, listed_versions, open_dataset, said
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from lakehand.storage import Store

_NOTE = "_lakehand/marks.json"
_MARKS = "marks"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """The marks of all writers, as of a version."""

    version: int
    marks: Mapping[str, int]


class LazyMarks(Mapping[str, int]):
    """The newest mark of every writer, looked for when the first one is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _found(self) -> dict[str, int]:
        return newest_marks(self._store)

    def __getitem__(self, application: str) -> int:
        return self._found[application]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def newest_marks(store: Store) -> dict[str, int]:
    """Return the newest mark of every writer."""
    marks, _ = _find(store)
    return marks


def note_marks(store: Store, properties: Mapping[str, Any], *, version: int) -> None:
    """Note what the commit of `version` says of all writers."""
    _put(store, properties[_MARKS], version)


def keep_marks(store: Store) -> None:
    """Note marks that are about to be lost with their versions."""
    marks, version = _find(store)
    if marks:
        _put(store, marks, version)


def _find(store: Store) -> tuple[dict[str, int], int]:
    noted, until = _read(store)
    newest = until
    for version in listed_versions(store):
        newest = max(newest, version)
        if version <= until:
            break
        found = read_properties(store, version).get(_MARKS)
        if found:
            return found, version
    return noted, newest


def _read(store: Store) -> tuple[dict[str, int], int]:
    try:
        note = read_value(_Note, parse_object(store.get(_NOTE)))
    except ObjectNotFoundError:
        return {}, 0
    except DocumentError as error:
        raise unreadable(f"{_NOTE} of {store.url}", error) from error
    return dict(note.marks), note.version


def _put(store: Store, marks: Mapping[str, int], version: int) -> None:
    store.put(_NOTE, json.dumps({"version": version, _MARKS: dict(marks)}).encode())


PROPERTY = "lakehand"
#: By these words Lance says that a commit did not happen because of another one; by the last ones,
#: that an index was built over some of the fragments that are merged.
_CONFLICT = re.compile(
    r"commit conflict|Incompatible transaction|Too many concurrent writers"
    r"|split of indexed and non-indexed data"
)


def is_conflict(failure: BaseException) -> bool:
    """Say whether a commit is certain to have failed because of another one."""
    return _CONFLICT.search(str(failure)) is not None


def properties_of(found: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what lakehand wrote into the properties of a transaction; empty if nothing."""
    text = (found or {}).get(PROPERTY)
    try:
        return parse_object(text) if text else {}
    except DocumentError as error:
        raise unreadable("what lakehand wrote into a transaction", error) from error


def read_properties(store: Store, version: int) -> dict[str, Any]:
    """Return what lakehand wrote into the commit of a version; empty if that is none of its."""
    try:
        dataset = open_dataset(store, version)
        transaction = dataset.read_transaction(version)
    except (TypeError, ValueError, VersionNotFoundError):
        # The library cannot build every operation that it writes; those of rows it can.
        return {}
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        message = f"version {version} of {store.url} does not say how it came about"
        raise StorageError(f"{message}: {said(error, store)}", path=store.url) from error
    return properties_of(transaction.transaction_properties if transaction else None)


def own_record(found: Mapping[str, Any]) -> Record | None:
    """Return what was written as a record of a commit."""
    if not found:
        return None
    try:
        return parse_record(found)
    except DocumentError as error:
        raise unreadable("what lakehand wrote into a transaction", error) from error


def commit_record(store: Store, version: int) -> Record | None:
    """Return what is known of a commit of lakehand; None if the version is none of its."""
    return read_record(store, version) or own_record(read_properties(store, version))


def find_token(store: Store, token: str, *, after: int) -> int | None:
    """Return the version above `after` whose properties have `token`."""
    for version in listed_versions(store):
        if version <= after:
            return None
        if read_properties(store, version).get("token") == token:
            return version
    return None


_logger = get_logger(__name__)

_DIRECTORY = "_lakehand/commits"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A commit of lakehand."""

    token: str
    operation: str
    base_version: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    proof: Mapping[str, Any] | None = None
    #: Keys of the data files that it brings; any of them shows that it landed.
    outputs: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def put_pending(store: Store, record: Record) -> None:
    """Say what is about to be committed."""
    store.put(_pending_key(record.token), record.to_bytes())


def read_pending(store: Store, token: str) -> Record | None:
    return _records_read(store, _pending_key(token))


def note_landed(store: Store, record: Record, *, version: int) -> None:
    """Remember that `record` became `version`."""
    store.put(_key(version), record.to_bytes())
    drop_pending(store, record.token)


def drop_pending(store: Store, token: str) -> None:
    """Forget a commit that is proved lost, or remembered by its version."""
    store.delete([_pending_key(token)])


def read_record(store: Store, version: int) -> Record | None:
    """Return what is remembered of a version; None if it is none of lakehand's."""
    return _records_read(store, _key(version))


def list_records(store: Store) -> list[Record]:
    """Return all that is remembered, the oldest version first."""
    _, objects = store.list_directory(_DIRECTORY)
    found = (_read_or_leave(store, key) for key in sorted(info.key for info in objects))
    return [record for record in found if record is not None]


def drop_records(store: Store, *, versions: Collection[int], live: Collection[str]) -> None:
    """Forget commits whose versions are gone, and whose files the table no longer has."""
    kept = {_key(version) for version in versions}
    _, objects = store.list_directory(_DIRECTORY)
    for key in {info.key for info in objects} - kept:
        record = _read_or_leave(store, key)
        if record is not None and set(record.outputs).isdisjoint(live):
            store.delete([key])


def _records_read(store: Store, key: str) -> Record | None:
    try:
        return parse_record(parse_object(store.get(key)))
    except ObjectNotFoundError:
        return None
    except DocumentError as error:
        raise unreadable(f"{key} of {store.url}", error) from error


def _read_or_leave(store: Store, key: str) -> Record | None:
    """Return a record; None, with a warning, if it cannot be read: it is left alone then."""
    try:
        return _records_read(store, key)
    except CorruptLogError as error:
        log_event(_logger, logging.WARNING, "record_unreadable", "%s", error.message)
        return None


def parse_record(value: Mapping[str, Any]) -> Record:
    """Return the record of a commit; DocumentError if it is none."""
    return read_value(Record, value, required=("outputs",))


def unreadable(what: str, error: Exception) -> CorruptLogError:
    """Return the error for something that lakehand noted of its commits, and cannot read."""
    return CorruptLogError(
        f"{what} cannot be read: {error}",
        hint="another version of lakehand may have written it; restore it from a copy",
    )


def _key(version: int) -> str:
    return f"{_DIRECTORY}/{version:020d}.json"


def _pending_key(token: str) -> str:
    return f"{_DIRECTORY}/pending/{token}.json"
