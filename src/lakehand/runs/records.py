"""What a ledger holds, as values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Names that one attempt at one group may use: every file starts with `stem`."""

    stem: str
    group: int
    attempt: str
    #: Directory of the files, relative to the table's root; None: it may be any.
    directory: str | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


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
