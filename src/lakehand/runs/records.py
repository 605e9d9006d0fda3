"""What a ledger holds, as values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand.model.work import Group, GroupResult

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


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRecord:
    """A result in the ledger, with its group where the run's own plan does not hold it."""

    result: GroupResult
    group: Group | None = None

    def to_json(self) -> dict[str, Any]:
        group = self.group.to_json() if self.group else None
        return {"result": self.result.to_json(), "group": group}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        group = Group.from_json(value["group"]) if value["group"] else None
        return cls(result=GroupResult.from_json(value["result"]), group=group)


def table_state(snapshot: Snapshot) -> str:
    """Return a fingerprint of all but the files: equal where results of one fit the other."""
    columns = [str(field) for field in snapshot.schema]
    facts = [columns, list(snapshot.partition_columns), sorted(snapshot.properties.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
