"""What lakehand remembers of its commits: Lance keeps neither tokens nor proofs of a compaction.

_lakehand/commits/pending/<token>.json   put before the commit; names the files that it brings
_lakehand/commits/<version>.json         put once it landed
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, ObjectNotFoundError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakehand.storage import Store

__all__ = [
    "Record",
    "drop_pending",
    "drop_records",
    "list_records",
    "note_landed",
    "parse_record",
    "put_pending",
    "read_pending",
    "read_record",
    "unreadable",
]

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
    return _read(store, _pending_key(token))


def note_landed(store: Store, record: Record, *, version: int) -> None:
    """Remember that `record` became `version`."""
    store.put(_key(version), record.to_bytes())
    drop_pending(store, record.token)


def drop_pending(store: Store, token: str) -> None:
    """Forget a commit that is proved lost, or remembered by its version."""
    store.delete([_pending_key(token)])


def read_record(store: Store, version: int) -> Record | None:
    """Return what is remembered of a version; None if it is none of lakehand's."""
    return _read(store, _key(version))


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


def _read(store: Store, key: str) -> Record | None:
    try:
        return parse_record(parse_object(store.get(key)))
    except ObjectNotFoundError:
        return None
    except DocumentError as error:
        raise unreadable(f"{key} of {store.url}", error) from error


def _read_or_leave(store: Store, key: str) -> Record | None:
    """Return a record; None, with a warning, if it cannot be read: it is left alone then."""
    try:
        return _read(store, key)
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
