"""A checkpoint held against the commits that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import (
    CorruptFileError,
    CorruptLogError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from lakehand.formats.delta.log.discovery import LogSegment, find_segment
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.log.state import fold

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakehand.formats.delta.log.listing import CheckpointFiles
    from lakehand.formats.delta.log.state import LogState
    from lakehand.storage import Store

__all__ = ["checkpoint_difference"]

#: With it checkpoints forget transactions, and nobody can say which they had to keep.
_FORGETS_TRANSACTIONS = "delta.setTransactionRetentionDuration"
#: Null, empty and absent mean the same in a partition value.
_PARTITION = (
    "list_sort(list_filter(map_entries(coalesce(partitionValues, MAP {})), "
    "lambda entry: coalesce(entry.value, '') <> ''))"
)
_IDENTITY = (
    f"hash(path_key, size, baseRowId, {_PARTITION}, deletionVector.storageType, "
    "deletionVector.pathOrInlineDv, deletionVector.offset, deletionVector.cardinality)"
)
_COMPARED = ("size", "deletionVector", "partitionValues", "baseRowId")


def checkpoint_difference(
    store: Store, checkpoint: CheckpointFiles, *, distrusted: Collection[str] = ()
) -> str | None:
    """Say in what a checkpoint differs from a replay without it; None: in nothing.

    None as well where the commits before it are gone: then it is the only witness. The checkpoint
    itself must be readable; older ones with a file in `distrusted` are not taken for the replay.
    """
    alone = LogSegment(version=checkpoint.version, checkpoint=checkpoint, commits=())
    others = {
        key
        for other in list_log(store).checkpoints
        if other.version == checkpoint.version
        for key in other.keys
    }
    try:
        replayed = find_segment(
            store, version=checkpoint.version, distrusted=others | set(distrusted)
        )
        expected, state = _files(store, replayed), _state(store, replayed)
    except (CorruptLogError, CorruptFileError, VersionNotFoundError, ObjectNotFoundError):
        return None
    found = _files(store, alone)
    if found != expected:
        return f"it holds {found[0]:,} files, or others than the {expected[0]:,} of the commits"
    return _other_difference(_state(store, alone), state)


def _files(store: Store, segment: LogSegment) -> tuple[int, str]:
    """Return the number of live files and a sum over what identifies each of them."""
    with open_log_source(store, segment) as source:
        relation = live_relation(source, "add", _COMPARED)
        query = f"SELECT count(*) AS n, sum({_IDENTITY})::VARCHAR AS total FROM {relation}"
        row = source.stream(query).read_all().to_pylist()[0]
        return row["n"], row["total"] or ""


def _state(store: Store, segment: LogSegment) -> LogState:
    with open_log_source(store, segment) as source:
        return fold(source.other_actions(), table=store.url, version=segment.version)


def _other_difference(found: LogState, expected: LogState) -> str | None:
    if found.protocol != expected.protocol:
        return "it holds another protocol than the commits"
    if found.metadata != expected.metadata:
        return "it holds other metadata than the commits"
    if found.domains != expected.domains:
        return "it holds other domain metadata than the commits"
    if _FORGETS_TRANSACTIONS in expected.metadata.configuration:
        return None
    if _transactions(found) != _transactions(expected):
        return "it holds other transactions than the commits"
    return None


def _transactions(state: LogState) -> dict[str, int]:
    return {name: int(action["version"]) for name, action in state.transactions.items()}
