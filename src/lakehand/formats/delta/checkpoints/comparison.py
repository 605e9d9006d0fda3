"""Compares a checkpoint with the commits that it replaces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakehand import errors
from lakehand.formats.delta.checkpoints.content import expired_tombstones_ms
from lakehand.formats.delta.log.listing import (
    CheckpointFiles,
    LogListing,
    LogSegment,
    find_segment,
    list_log,
)
from lakehand.formats.delta.log.log_source import LogSource, open_log_source
from lakehand.formats.delta.log.log_state import LogState, fold
from lakehand.formats.delta.log.replay import live_relation
from lakehand.model.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakehand.formats.delta.log.short_log import FileKind
    from lakehand.formats.delta.protocol.actions import Protocol
    from lakehand.storage import Store

#: With it checkpoints drop transactions, and it is unknown which they had to keep.
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
_TOMBSTONE = (
    "hash(path_key, deletionTimestamp, deletionVector.storageType, "
    "deletionVector.pathOrInlineDv, deletionVector.offset)"
)
#: What one action on a file and a later one have in common.
_KEY = (
    "hash(path_key, deletionVector.storageType, deletionVector.pathOrInlineDv, "
    "deletionVector.offset)"
)
_COMPARED_TOMBSTONE = ("deletionTimestamp", "deletionVector")
#: What is compared of files, in the words of a report.
_KINDS = ("files", "tombstones in force")
#: How far the clocks of those who write checkpoints may be ahead.
_CLOCKS_DIFFER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointDifference:
    """In what a checkpoint differs from the commits."""

    reason: str
    #: What it has and the commits lack, which may have lost it; None: nothing.
    extra: str | None = None


def checkpoint_difference(
    store: Store,
    checkpoint: CheckpointFiles,
    *,
    now: datetime,
    distrusted: Collection[str] = (),
    listing: LogListing | None = None,
) -> CheckpointDifference | None:
    """Say in what a checkpoint differs from a replay without it; None: in nothing.

    None as well where the commits before it are gone: then it is the only witness. The checkpoint
    itself must be readable; older ones with a file in `distrusted` are not taken for the replay.
    Tombstones are compared that no writer may have left out, because they have not expired `now`.
    A `listing` of the whole log, where there is one, saves to list it for each checkpoint.
    """
    listing = list_log(store) if listing is None else listing
    alone = LogSegment(version=checkpoint.version, checkpoint=checkpoint, commits=())
    older = listing.with_checkpoints(
        other
        for other in listing.checkpoints
        if other.version < checkpoint.version and not set(other.keys) & set(distrusted)
    )
    try:
        replayed = find_segment(store, version=checkpoint.version, listing=older)
        with open_log_source(store, replayed) as source:
            state = _state(source)
            since = _expired_ms(state, now)
            expected = _named(source, since)
    except (
        errors.CorruptLogError,
        errors.CorruptFileError,
        errors.VersionNotFoundError,
        errors.ObjectNotFoundError,
    ):
        return None
    with open_log_source(store, alone) as source:
        named = _named(source, since)
        own_state = _state(source)
    reason = _file_difference(named, expected) or _other_difference(own_state, state)
    if reason is None:
        return None
    extra = [] if named == expected else list(_extra_files(store, alone, replayed))
    extra += _extra_actions(own_state, state)
    return CheckpointDifference(reason=reason, extra=" and ".join(extra) or None)


def _file_difference(
    named: Sequence[tuple[int, str]], expected: Sequence[tuple[int, str]]
) -> str | None:
    for kind, found, wanted in zip(_KINDS, named, expected, strict=True):
        if found != wanted:
            return f"it holds {found[0]:,} {kind}, or others than the {wanted[0]:,} of the commits"
    return None


def _extra_files(store: Store, alone: LogSegment, replayed: LogSegment) -> Iterator[str]:
    """Name files of a checkpoint that the commits do not have like this, or did not remove."""
    entries = _values(store, alone, _IDENTITY) - _values(store, replayed, _IDENTITY)
    if entries:
        yield format_count(len(entries), "file")
    removed = _values(store, alone, _KEY, kind="remove") & _values(store, replayed, _KEY)
    if removed:
        yield format_count(len(removed), "file removal")


def _values(
    store: Store, segment: LogSegment, expression: str, *, kind: FileKind = "add"
) -> set[object]:
    members = _COMPARED if kind == "add" else _COMPARED_TOMBSTONE
    with open_log_source(store, segment) as source:
        relation = live_relation(source, kind, members)
        found = source.stream(f"SELECT {expression} AS value FROM {relation}").read_all()
    return set(found["value"].to_pylist())


def _extra_actions(found: LogState, expected: LogState) -> Iterator[str]:
    """Name what else a checkpoint has; which of two protocols is right is not known."""
    if _told(found.protocol) != _told(expected.protocol):
        yield "a protocol"
    if replace(found.metadata, unknown={}) != replace(expected.metadata, unknown={}):
        yield "metadata"
    if not found.domains.items() <= expected.domains.items():
        yield "domain metadata"
    known = _transactions(expected)
    if any(version > known.get(name, -1) for name, version in _transactions(found).items()):
        yield "transactions"


def _named(source: LogSource, since: int) -> list[tuple[int, str]]:
    """Return the number of live files, of tombstones since then, and a sum that tells which."""
    files = live_relation(source, "add", _COMPARED)
    removed = live_relation(source, "remove", _COMPARED_TOMBSTONE)
    is_in_force = f"coalesce(deletionTimestamp, 0) > {since}"
    return [
        _sum(source, _IDENTITY, files),
        _sum(source, _TOMBSTONE, f"{removed} WHERE {is_in_force}"),
    ]


def _sum(source: LogSource, identity: str, relation: str) -> tuple[int, str]:
    query = f"SELECT count(*) AS n, sum({identity})::VARCHAR AS total FROM {relation}"
    row = source.stream(query).read_all().to_pylist()[0]
    return row["n"], row["total"] or ""


def _expired_ms(state: LogState, now: datetime) -> int:
    """Return until when tombstones may have expired for the writer of a checkpoint."""
    return expired_tombstones_ms(state.metadata.configuration, now + _CLOCKS_DIFFER)


def _state(source: LogSource) -> LogState:
    return fold(source.other_actions(), table=source.table, version=source.segment.version)


def _other_difference(found: LogState, expected: LogState) -> str | None:
    if _told(found.protocol) != _told(expected.protocol):
        return "it holds another protocol than the commits"
    if replace(found.metadata, unknown={}) != replace(expected.metadata, unknown={}):
        return "it holds other metadata than the commits"
    if found.domains != expected.domains:
        return "it holds other domain metadata than the commits"
    if _FORGETS_TRANSACTIONS in expected.metadata.configuration:
        return None
    if _transactions(found) != _transactions(expected):
        return "it holds other transactions than the commits"
    return None


def _told(protocol: Protocol) -> Protocol:
    """Return what every writer keeps of a protocol: features are a set, in whatever order.

    The columns of a checkpoint are fixed, so it holds no members that its writer does not know.
    """
    features = [
        None if names is None else tuple(sorted(names))
        for names in (protocol.reader_features, protocol.writer_features)
    ]
    return replace(protocol, reader_features=features[0], writer_features=features[1], unknown={})


def _transactions(state: LogState) -> dict[str, int]:
    return {name: int(action["version"]) for name, action in state.transactions.items()}
