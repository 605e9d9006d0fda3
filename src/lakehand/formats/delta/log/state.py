"""The newest of every action that names no file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.activity import uses_in_commit_timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakehand.formats.delta.log.source import OtherAction

__all__ = ["LogState", "fold"]


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
        raise CorruptLogError(message, table=table, version=version) from error


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
    raise CorruptLogError(
        f"the log of {table} holds no {kind} action up to version {version}",
        table=table,
        version=version,
        hint="the table was not created completely, or its log was damaged",
    )
