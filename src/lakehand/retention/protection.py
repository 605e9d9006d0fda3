"""What vacuum promises to keep: by its retention, by pins, and for streams and clones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakehand.errors import LakehandError, RefusedError, ValidationError, VersionNotFoundError
from lakehand.formats.base import FormatTable, require_support, support_of
from lakehand.formats.optional import DataNames, SupportsStreams, SupportsTags, SupportsVacuum
from lakehand.formats.registry import detect_format
from lakehand.model.quantities import format_duration
from lakehand.model.retention import Holder, Protection
from lakehand.retention.pins import DIRECTORY as PINS_DIRECTORY
from lakehand.retention.pins import Pin, list_pins
from lakehand.runs.ledger import RUNS_DIRECTORY
from lakehand.runs.state import versions_under_way
from lakehand.storage.objects import OWN_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings
    from lakehand.storage import ObjectInfo, Store

DEFAULT_RETENTION = timedelta(hours=168)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Held:
    """What pins ask for beyond the retention."""

    versions: tuple[int, ...] = ()
    #: All versions from this one on.
    from_version: int | None = None
    #: Bare names of files that clones refer to.
    names: pa.ChunkedArray
    holders: tuple[Holder, ...] = ()
    pins: tuple[Pin, ...] = ()
    #: Tags of pins that have expired: they keep nothing.
    expired_tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnObjects:
    """What a table has directly below `_lakehand`: one request tells which kinds there are."""

    directories: frozenset[str]
    objects: tuple[ObjectInfo, ...]

    @classmethod
    def of(cls, store: Store) -> Self:
        directories, objects = store.list_directory(OWN_DIRECTORY)
        names = frozenset(directory.rstrip("/") for directory in directories)
        return cls(directories=names, objects=tuple(objects))

    def pins(self, store: Store) -> list[Pin]:
        return list_pins(store) if PINS_DIRECTORY in self.directories else []

    @property
    def has_runs(self) -> bool:
        return RUNS_DIRECTORY in self.directories


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Promise:
    """What must stay, and for how long the rest does."""

    table: SupportsVacuum
    settings: Settings
    names: DataNames
    clock: Clock
    retention: timedelta
    held: Held
    protection: Protection
    #: As they were before the table was read.
    own: OwnObjects

    @property
    def since(self) -> datetime:
        return self.clock.now() - self.retention

    @property
    def grace(self) -> timedelta:
        grace: timedelta = self.settings.grace
        return grace


def read_promise(opened: FormatTable, settings: Settings, clock: Clock) -> Promise:
    """Read what must stay; RefusedError if that is not known."""
    table = require_support(opened, SupportsVacuum, operation="vacuum")
    snapshot = table.snapshot()
    in_force = settings.with_properties(snapshot.properties)
    table.require("vacuum", snapshot, force=in_force["vacuum_stale_metadata"])
    retention = choose_retention(table, snapshot, in_force)
    own = OwnObjects.of(table.store)
    pins = own.pins(table.store)
    held = hold(table, [pin for pin in pins if pin.is_in_force(clock.now())])
    if isinstance(opened, SupportsTags):
        held = _with_tags(held, opened.tagged_versions(), pins)
        held = _with_branches(held, opened.branches())
    if own.has_runs:
        held = _with_runs(held, table, in_force, now=clock.now())
    held = _from(held, _first_of_newest(table, in_force["keep_versions"]))
    protection = protect(table, held, since=clock.now() - retention)
    return Promise(
        table=table,
        settings=in_force,
        names=table.data_names(snapshot),
        clock=clock,
        retention=retention,
        held=held,
        protection=protection,
        own=own,
    )


def choose_retention(table: SupportsVacuum, snapshot: Snapshot, settings: Settings) -> timedelta:
    """Return how long files stay after their last version; ValidationError below what is safe."""
    floor = max(DEFAULT_RETENTION, table.retention(snapshot))
    asked: timedelta | None = settings.retention
    if asked is None or asked >= floor:
        return asked or floor
    if not settings.allow_short_retention:
        raise ValidationError(
            f"a retention of {format_duration(asked)} is below the {format_duration(floor)} that "
            "readers of this table may count on",
            field="retention",
            value=str(asked),
            hint="leave it out, or set --allow-short-retention if no reader needs older versions",
        )
    return asked


def hold(table: FormatTable, pins: list[Pin]) -> Held:
    """Return what `pins` hold back; RefusedError, which names the pin, if one cannot be read."""
    holders: list[Holder] = []
    names: list[pa.Array] = []
    for pin in pins:
        version = pin.version
        try:
            if pin.stream is not None:
                streamed = require_support(table, SupportsStreams, operation="pin of a stream")
                version = streamed.streamed_version(table.store.open_other(pin.stream))
            if pin.clone is not None:
                names += _named_by_clone(table, pin.clone)
        except LakehandError as error:
            raise _unreadable(table, pin, error) from error
        holders.append(Holder(name=pin.name, kind=pin.kind, version=version, uri=pin.uri))
    firsts = [item.version for item in holders if item.kind == "stream"]
    return Held(
        versions=tuple(item.version or 0 for item in holders if item.kind == "version"),
        from_version=min((version or 0 for version in firsts), default=None),
        names=pa.chunked_array(names, pa.string()),
        holders=tuple(holders),
        pins=tuple(pins),
    )


def protect(table: FormatTable, held: Held, *, since: datetime) -> Protection:
    """Return what versions since then need, and those that are held; RefusedError if one is lost.

    A version is lost if a repair dropped it, or another program cleaned the log.
    """
    protected = table.protected
    if isinstance(table, SupportsTags):
        protected = partial(table.protected, ignored_tags=held.expired_tags)
    try:
        return protected(since=since, pinned_versions=held.versions, from_version=held.from_version)
    except VersionNotFoundError as error:
        missing = error.to_json().get("version")
        lost = [holder for holder in held.holders if holder.version == missing is not None]
        if not lost:
            raise
        raise _lost(table, lost[0], error) from error


def protect_since(
    table: SupportsVacuum, *, version: int, ignored_tags: Collection[str] = ()
) -> Protection:
    """Return what versions after `version` need, and those with a tag that is not ignored."""
    tagged = support_of(table, SupportsTags)
    if tagged is None:
        return table.protected_since(version=version)
    return tagged.protected_since(version=version, ignored_tags=ignored_tags)


def _with_tags(held: Held, tags: Mapping[str, int], pins: list[Pin]) -> Held:
    """Add versions that the table itself keeps by a name, unless a pin has it already.

    The tag of a pin that has expired keeps nothing, if it is still the one that was made for it.
    """
    gone = {pin.name: pin.version for pin in pins if pin.tagged and pin not in held.pins}
    expired = tuple(name for name, version in tags.items() if gone.get(name, -1) == version)
    known = {*(holder.name for holder in held.holders), *expired}
    tagged = [
        Holder(name=name, kind="tag", version=version)
        for name, version in tags.items()
        if name not in known
    ]
    versions = (*held.versions, *(holder.version or 0 for holder in tagged))
    holders = (*held.holders, *tagged)
    return replace(held, versions=versions, holders=holders, expired_tags=expired)


def _with_branches(held: Held, branches: Mapping[str, int | None]) -> Held:
    """Name the branches of the table; what they need is among what the format protects."""
    found = [Holder(name=name, kind="branch", version=at) for name, at in branches.items()]
    return replace(held, holders=(*held.holders, *found))


def _with_runs(held: Held, table: FormatTable, settings: Settings, *, now: datetime) -> Held:
    """Add what runs of lakehand are reading, and all that came since."""
    versions = versions_under_way(
        table.store, now=now, takeover_after=settings.takeover_after
    ).items()
    running = [Holder(name=run_id, kind="run", version=version) for run_id, version in versions]
    first = min((version for _, version in versions), default=None)
    return _from(replace(held, holders=(*held.holders, *running)), first)


def _first_of_newest(table: FormatTable, count: int) -> int | None:
    """Return the oldest of the `count` newest versions; None where the newest alone is asked for.

    They are counted in the history, because numbers may be missing.
    """
    entries = table.history(limit=count) if count > 1 else ()
    return entries[-1].version if entries else None


def _from(held: Held, version: int | None) -> Held:
    """Add all versions from this one on."""
    if version is None:
        return held
    first = version if held.from_version is None else min(version, held.from_version)
    return replace(held, from_version=first)


def _named_by_clone(table: FormatTable, uri: str) -> list[pa.Array]:
    """Return the bare names of files outside of itself that a clone refers to in any version.

    All of its history counts: how long its own readers look back is its owner's to say.
    """
    store = table.store.open_other(uri)
    clone = detect_format(store).open(store)
    chunks: list[pa.Array] = clone.protected(
        since=clone.snapshot().at - DEFAULT_RETENTION, from_version=0
    ).names.chunks
    return chunks


def _lost(table: FormatTable, holder: Holder, error: LakehandError) -> RefusedError:
    return RefusedError(
        f"{holder.kind} {holder.name!r} of {table.store.url} is to be kept and is not there:"
        f" {error.message}",
        table=table.store.url,
        operation="vacuum",
        version=holder.version,
        hint="nothing was deleted; bring the version back from a backup, or remove the pin with"
        f" `lakehand pin TABLE {holder.name} --remove`",
    )


def _unreadable(table: FormatTable, pin: Pin, error: LakehandError) -> RefusedError:
    return RefusedError(
        f"what the {pin.kind} of pin {pin.name!r} still needs of {table.store.url} cannot be told: "
        f"{error.message}",
        table=table.store.url,
        operation="vacuum",
        hint=f"nothing was deleted; make {pin.uri or 'it'} readable, or remove the pin with"
        f" `lakehand pin TABLE {pin.name} --remove`",
    )
