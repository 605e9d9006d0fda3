"""How far a Spark Structured Streaming query has read a table, from its checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.members import load_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.storage import Store

__all__ = ["oldest_streamed_version"]


def oldest_streamed_version(checkpoint: Store, *, table_id: str) -> int:
    """Return the oldest version whose files the query still needs.

    It goes on from the end of the last batch that it finished; before the first one it may start
    anywhere, unless it reads a snapshot first. RefusedError if the directory does not tell.
    """
    batches = _numbers(checkpoint, "offsets")
    done = [batch for batch in batches if batch in set(_numbers(checkpoint, "commits"))]
    if not batches:
        raise _unreadable(checkpoint, "it holds no offsets")
    offsets = list(_offsets(checkpoint, done[-1] if done else batches[0], table_id))
    if not offsets:
        raise _unreadable(checkpoint, f"none of its sources is the table {table_id}")
    if not done and not all(offset.get("isStartingVersion") for offset in offsets):
        return 0
    return min(_oldest_needed(offset) for offset in offsets)


def _oldest_needed(offset: dict[str, Any]) -> int:
    """Return the version noted, if that is read as a snapshot, else the one before.

    What is noted is mostly the next, unread version. The change feed shows rows that it removed out
    of files of the version before.
    """
    version = int(offset["reservoirVersion"])
    return version if offset.get("isStartingVersion") else max(version - 1, 0)


def _numbers(checkpoint: Store, directory: str) -> list[int]:
    names = (info.key.rpartition("/")[2] for info in checkpoint.list(directory))
    return sorted(int(name) for name in names if name.isdigit())


def _offsets(checkpoint: Store, batch: int, table_id: str) -> Iterator[dict[str, Any]]:
    """Yield the positions in this table: one line a source, after a version and the batch's own."""
    lines = checkpoint.get(f"offsets/{batch}").decode().splitlines()
    for line in lines[2:]:
        try:
            offset = load_json(line)
        except ValueError:
            # "-": the source had nothing yet; other sources write what they like.
            continue
        if isinstance(offset, dict) and offset.get("reservoirId") == table_id:
            if not isinstance(offset.get("reservoirVersion"), int):
                raise _unreadable(checkpoint, f"offsets/{batch} names no version")
            yield offset


def _unreadable(checkpoint: Store, reason: str) -> RefusedError:
    return RefusedError(
        f"how far the stream of {checkpoint.url} has read cannot be told: {reason}",
        operation="vacuum",
        hint="name the checkpoint directory of a stream that has run, or remove the pin",
    )
