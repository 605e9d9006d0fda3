"""What a ledger holds, as values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    RunError,
    StorageError,
    StoreUnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

#: How often an object is put that a store without an answer does not have.
_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Names that one attempt at one group may use: every file starts with `stem`."""

    stem: str
    group: int
    attempt: str
    #: Directory of the files, relative to the table's root; None: it may be any.
    directory: str | None
    #: Files by other names, where the table's format chooses them: known once they are written.
    files: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "files": tuple(value.get("files", ()))})


def read_object(key: str, text: bytes) -> dict[str, Any]:
    """Return what an object of a ledger says; RunError if it says nothing that can be read."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunError(
            f"{key} cannot be read: it is not what lakehand writes there",
            hint="nothing of that run is touched; once nobody works on the table, delete the run's"
            " folder, and vacuum finds the files that it left",
        )
    return value


def put_first(store: Store, key: str, data: bytes) -> bytes:
    """Put an object unless there is one, and return what is there; what was lost is put again."""
    failure: StorageError | None = None
    for _ in range(_TRIES):
        try:
            store.put_if_absent(key, data)
        except (ObjectExistsError, StoreUnreachableError) as error:
            failure = error
        else:
            return data
        try:
            return store.get(key)
        except ObjectNotFoundError:
            continue
    raise RunError(f"{key} of {store.url} could not be recorded") from failure


def table_state(snapshot: Snapshot) -> str:
    """Return a fingerprint of all but the files: equal where results of one fit the other."""
    columns = [str(field) for field in snapshot.schema]
    facts = [
        snapshot.table_id,
        snapshot.rules,
        columns,
        list(snapshot.partition_columns),
        sorted(snapshot.properties.items()),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
