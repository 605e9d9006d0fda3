"""A checkpoint held against the commits that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError, ObjectNotFoundError, VersionNotFoundError
from lakehand.formats.delta.log.discovery import LogSegment, find_segment
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.replay import live_relation
from lakehand.formats.delta.log.source import open_log_source
from lakehand.formats.delta.log.state import fold

if TYPE_CHECKING:
    from lakehand.formats.delta.log.listing import CheckpointFiles
    from lakehand.formats.delta.log.state import LogState
    from lakehand.storage import Store

__all__ = ["checkpoint_difference"]

_State = tuple[int, int, int, str]


def checkpoint_difference(store: Store, checkpoint: CheckpointFiles) -> str | None:
    """Say in what a checkpoint differs from a replay without it; None: in nothing.

    None as well where the commits before it are gone: then it is the only witness. The checkpoint
    itself must be readable.
    """
    alone = LogSegment(version=checkpoint.version, checkpoint=checkpoint, commits=())
    others = {
        key
        for other in list_log(store).checkpoints
        if other.version == checkpoint.version
        for key in other.keys
    }
    try:
        replayed = find_segment(store, version=checkpoint.version, distrusted=others)
        expected = _files(store, replayed)
    except (CorruptLogError, VersionNotFoundError, ObjectNotFoundError):
        return None
    found = _files(store, alone)
    if found != expected:
        return f"it holds {found[0]:,} files, or others than the {expected[0]:,} of the commits"
    return _other_difference(_state(store, alone), _state(store, replayed))


def _files(store: Store, segment: LogSegment) -> tuple[int, int]:
    """Return the number of live files and a sum over what identifies each of them."""
    with open_log_source(store, segment) as source:
        relation = live_relation(source, "add", ("size", "deletionVector"))
        identity = (
            "hash(path_key, size, deletionVector.storageType, deletionVector.pathOrInlineDv, "
            "deletionVector.offset)"
        )
        rows = source.stream(f"SELECT count(*) AS n, bit_xor({identity}) AS h FROM {relation}")
        row = rows.read_all().to_pylist()[0]
        return row["n"], row["h"] or 0


def _state(store: Store, segment: LogSegment) -> LogState:
    with open_log_source(store, segment) as source:
        return fold(source.other_actions(), table=store.url, version=segment.version)


def _other_difference(found: LogState, expected: LogState) -> str | None:
    if found.protocol != expected.protocol:
        return "it holds another protocol than the commits"
    if found.metadata != expected.metadata:
        return "it holds other metadata than the commits"
    return None
