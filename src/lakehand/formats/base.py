"""The core of the format protocol: what every table format implements.

Modules above this one know no format by name. What only some formats support is in `optional`. A
worker, which reads and writes files where tasks run, is described in `worker`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from lakehand.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakehand.formats.worker import FormatWorker
    from lakehand.model.reports import Difference, HistoryEntry
    from lakehand.model.retention import Protection
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.model.work import Change, DataFile, Receipt
    from lakehand.settings import Settings
    from lakehand.storage import Store

#: What may be done to a table, as far as its format has a say in it.
Operation = Literal["read", "inspect", "checkpoint", "rewrite", "order", "append", "vacuum"]
Supported = TypeVar("Supported")
#: Which classes of tables implement which protocols.
_SUPPORT: dict[tuple[type, type], bool] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What no table of a format allows. Never guessed from the name of the format."""

    #: The reason for each operation.
    lacking: Mapping[str, str] = field(default_factory=dict)


class Format(Protocol):
    """A way to keep tables in an object store."""

    name: str
    #: Defaults of settings where the format has its own, by their names.
    defaults: Mapping[str, Any]
    #: Directory that every table of the format has in its root, and nothing else has.
    root_directory: str

    def detect(self, store: Store) -> bool:
        """Say whether the root of `store` holds a table of this format."""
        ...

    def open(self, store: Store, *, settings: Settings | None = None) -> FormatTable:
        """Open the table at the root of `store`; NotATableError if there is none."""
        ...


class FormatTable(Protocol):
    """A table as the driver sees it. Holds no version: every call reads what it needs."""

    store: Store
    capabilities: Capabilities

    def with_settings(self, settings: Settings) -> FormatTable:
        """Return the same table, read and committed to under `settings`."""
        ...

    def snapshot(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        statistics: Sequence[str] = (),
    ) -> Snapshot:
        """Return a version, the newest by default, with the bounds of the columns in `statistics`.

        VersionNotFoundError if the version is gone or was never committed.
        """
        ...

    def history(self, *, limit: int | None = None) -> list[HistoryEntry]:
        """Return commits, newest first."""
        ...

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that were added and removed between two versions."""
        ...

    def require(
        self, operation: Operation, snapshot: Snapshot | TableHead, *, force: bool = False
    ) -> None:
        """Raise RefusedError, which names the feature, if `operation` is not safe on this table.

        `force` accepts that metadata of other formats for the same files becomes stale.
        """
        ...

    def partition_keys(self, snapshot: Snapshot, *, keeps_order: bool = True) -> pa.Array:
        """Return a key for each row of `snapshot.files`: files with equal keys may become one file.

        Files that were clustered together get their own keys if the rewrite `keeps_order`.
        """
        ...

    def data_files(self, snapshot: Snapshot, rows: Sequence[int]) -> tuple[DataFile, ...]:
        """Turn chosen rows of `snapshot.files` into values that can be sent to tasks."""
        ...

    def missing_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        """Return the paths that reading `files` needs and storage does not have."""
        ...

    def worker(self, snapshot: Snapshot | TableHead) -> FormatWorker:
        """Return what reads and writes files of this version in tasks."""
        ...

    def commit(self, change: Change, *, token: str) -> Receipt:
        """Commit `change`, rebased over what others committed since `change.base_version`.

        The commit carries `token`, by which `find_commit` finds it. Raises CommitConflictError or
        ReplanError (nothing was written) or CommitUnknownError (every file must be kept).
        """
        ...

    def find_commit(self, token: str, *, after: int) -> int | None:
        """Return the version that carries `token`, looking at versions above `after`."""
        ...

    def protected(
        self,
        *,
        since: datetime,
        pinned_versions: Collection[int] = (),
        from_version: int | None = None,
    ) -> Protection:
        """Return the files of all versions in force at `since` or later, and of pinned ones.

        With `from_version` also those of that version and later ones. RefusedError if it is not
        known which files those versions need.
        """
        ...


def require_capability(table: FormatTable, operation: str) -> None:
    """Raise RefusedError, with the reason, if no table of this format allows `operation`."""
    reason = table.capabilities.lacking.get(operation)
    if reason is not None:
        raise _refusal(table, operation, reason)


def require_support(table: FormatTable, protocol: type[Supported], *, operation: str) -> Supported:
    """Return `table` as one that implements an optional protocol; RefusedError if it does not.

    Called where an operation begins.
    """
    require_capability(table, operation)
    supported = support_of(table, protocol)
    if supported is None:
        reason, hint = "its format does not support it", "nothing was written"
        raise _refusal(table, operation, reason, hint=hint)
    return supported


def support_of(table: FormatTable, protocol: type[Supported]) -> Supported | None:
    """Return `table` if it implements an optional protocol, else None.

    Each class is compared with a protocol once: `isinstance` looks at every member every time.
    """
    compared = (type(table), protocol)
    if compared not in _SUPPORT:
        _SUPPORT[compared] = isinstance(table, protocol)
    return cast("Supported", table) if _SUPPORT[compared] else None


def _refusal(
    table: FormatTable, operation: str, reason: str, *, hint: str | None = None
) -> RefusedError:
    return RefusedError(
        f"{operation} is not possible on {table.store.url}: {reason}",
        table=table.store.url,
        operation=operation,
        hint=hint,
    )


def for_call(
    table: FormatTable, settings: Settings, call: Mapping[str, Any]
) -> tuple[FormatTable, Settings]:
    """Return a table and its settings as they are for one call that sets some of them."""
    if not call:
        return table, settings
    chosen = settings.with_call(call)
    return table.with_settings(chosen), chosen
