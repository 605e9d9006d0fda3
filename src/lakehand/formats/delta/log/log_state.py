"""The newest of every action that names no file, loaded around unreadable files where possible."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lakehand import errors
from lakehand.formats.delta.log.listing import LogListing, LogSegment, find_segment
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.features import uses_in_commit_timestamps
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakehand.formats.delta.log.log_source import OtherAction
    from lakehand.storage import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class LogState:
    protocol: Protocol
    metadata: Metadata
    #: Newest `txn` action of every application.
    transactions: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    #: Configuration of every domain.
    domains: Mapping[str, str] = field(default_factory=dict)
    #: What the newest commit says of itself; None if it was not among what was read.
    commit_info: Mapping[str, Any] | None = None

    @property
    def uses_in_commit_timestamps(self) -> bool:
        return uses_in_commit_timestamps(self.protocol, self.metadata)


def fold(actions: Iterable[OtherAction], *, table: str, version: int) -> LogState:
    """Reduce actions, oldest first, to what is in force; `version` is the newest of them."""
    newest: dict[str, dict[str, Any]] = {}
    transactions: dict[str, dict[str, Any]] = {}
    domains: dict[str, str] = {}
    commit_info = None
    try:
        for action in actions:
            match action.kind:
                case "txn":
                    transactions[action.value["appId"]] = action.value
                case "domainMetadata":
                    _fold_domain(domains, action.value)
                case "commitInfo":
                    commit_info = action.value if action.version == version else commit_info
                case _:
                    newest[action.kind] = action.value
        return LogState(
            protocol=Protocol.from_json(_require(newest, "protocol", table, version)),
            metadata=Metadata.from_json(_require(newest, "metaData", table, version)),
            transactions=transactions,
            domains=domains,
            commit_info=commit_info,
        )
    except ValueError as error:
        message = f"the log of {table} holds an action that cannot be used: {error}"
        raise errors.CorruptLogError(message, table=table, version=version) from error


def _fold_domain(domains: dict[str, str], value: Mapping[str, Any]) -> None:
    if value.get("removed"):
        domains.pop(value["domain"], None)
    else:
        domains[value["domain"]] = value.get("configuration") or ""


def _require(
    newest: Mapping[str, dict[str, Any]], kind: str, table: str, version: int
) -> dict[str, Any]:
    if kind in newest:
        return newest[kind]
    raise errors.CorruptLogError(
        f"the log of {table} holds no {kind} action up to version {version}",
        table=table,
        version=version,
        hint="the table was not created completely, or its log was damaged",
    )


T = TypeVar("T")
_logger = get_logger(__name__)


def load_soundly(
    store: Store,
    version: int | None,
    load: Callable[[LogSegment], T],
    *,
    listing: LogListing | None = None,
) -> T:
    """Return what `load` makes of the files of `version` (the newest if None).

    A checkpoint that cannot be read is passed over, and a log that is cleaned while it is read is
    looked at again. A `listing` of the whole log, where there is one, is believed at first.
    """
    segment = find_segment(store, version=version, listing=listing)
    distrusted: set[str] = set()
    while True:
        try:
            return load(segment)
        except errors.CorruptFileError as error:
            distrusted.update(segment.checkpoint.keys if segment.checkpoint else ())
            segment = _without(store, segment, distrusted, error)
        except errors.ObjectNotFoundError as error:
            segment = _afresh(store, version, segment, error)


def _without(
    store: Store, segment: LogSegment, distrusted: set[str], error: errors.CorruptFileError
) -> LogSegment:
    """Find another way to the same version, past checkpoints that cannot be read."""
    try:
        other = find_segment(store, version=segment.version, distrusted=distrusted)
    except (errors.CorruptLogError, errors.VersionNotFoundError):
        raise error from None
    if other.checkpoint == segment.checkpoint:
        raise error
    log_event(
        _logger,
        logging.WARNING,
        "checkpoint_ignored",
        "%s; reading the log from %s instead",
        error.message,
        f"version {other.checkpoint.version}" if other.checkpoint else "its start",
        table=store.url,
        path=error.attributes.get("path"),
    )
    return other


def _afresh(
    store: Store, version: int | None, segment: LogSegment, error: errors.ObjectNotFoundError
) -> LogSegment:
    """Find the version again after one of its files has vanished."""
    other = find_segment(store, version=version)
    if other == segment:
        message = f"a file of version {segment.version} of {store.url} vanished: {error.message}"
        raise errors.CorruptLogError(message, table=store.url, version=segment.version) from error
    return other
