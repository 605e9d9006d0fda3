"""Row ids: which tables hand them out, and which ones a new file gets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.members import load_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakehand.formats.delta.protocol.actions import Metadata, Protocol

ROW_TRACKING_DOMAIN = "delta.rowTracking"
#: High-water mark of a table that never handed out a row id.
NO_ROW_IDS = -1
#: Row ids are signed integers of 64 bits.
_ROW_IDS_END = 2**63

_FEATURE = "rowTracking"
_ENABLED = "delta.enableRowTracking"
_SUSPENDED = "delta.rowTrackingSuspended"


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Say whether every new file must get row ids, be they used yet or not."""
    listed = _FEATURE in (protocol.writer_features or ())
    return listed and metadata.configuration.get(_SUSPENDED, "false").lower() != "true"


def preserves_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Say whether rows must keep their ids when they move to another file."""
    enabled = metadata.configuration.get(_ENABLED, "false").lower() == "true"
    return enabled and assigns_row_ids(protocol, metadata)


def high_water_mark(domains: Iterable[Mapping[str, Any]]) -> int:
    """Return the highest row id that these domain actions say was handed out."""
    marks = [
        _read_mark(domain.get("configuration") or "")
        for domain in domains
        if domain["domain"] == ROW_TRACKING_DOMAIN and not domain.get("removed", False)
    ]
    return max(marks, default=NO_ROW_IDS)


def _read_mark(configuration: str) -> int:
    try:
        return _count(load_json(configuration)["rowIdHighWaterMark"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"the table's highest row id cannot be read from {configuration!r}"
        raise CorruptLogError(message) from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is no count")
    return value


def assign_row_ids(
    adds: Iterable[Mapping[str, Any]], *, mark: int, version: int
) -> tuple[list[dict[str, Any]], int]:
    """Return `adds` with row ids above `mark`, and the new mark.

    A file that comes with a base row id is one the table had before, and keeps what it has.
    """
    numbered: list[dict[str, Any]] = []
    for add in adds:
        if "baseRowId" in add:
            numbered.append(dict(add))
            continue
        numbered.append({**add, "baseRowId": mark + 1, "defaultRowCommitVersion": version})
        mark += physical_rows(add)
    if mark >= _ROW_IDS_END:
        raise CorruptLogError(
            f"the table's row ids are used up: the next would be {mark}",
            hint="nothing was written; the high-water mark of row ids in the log is wrong",
        )
    return numbered, mark


def physical_rows(add: Mapping[str, Any]) -> int:
    """Return how many rows, deleted ones included, the statistics of a file say it holds."""
    try:
        return _count(load_json(add["stats"])["numRecords"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"file {add['path']!r} has no row count in its statistics; this table needs one"
        raise CorruptLogError(message, path=add["path"]) from error


def high_water_mark_action(mark: int) -> dict[str, Any]:
    configuration = json.dumps({"rowIdHighWaterMark": mark}, separators=(",", ":"))
    return {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": False}
