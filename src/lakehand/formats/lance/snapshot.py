"""A version of a dataset as a snapshot."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand.errors import VersionNotFoundError
from lakehand.formats.lance.commit_records import LazyMarks
from lakehand.formats.lance.connect import open_dataset, reading
from lakehand.formats.lance.dataset_cache import evolved_dataset
from lakehand.formats.lance.fragments import column_numbers, file_table
from lakehand.formats.scan import unknown_bounds
from lakehand.model.snapshot import Snapshot
from lakehand.model.table_head import TableHead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakehand.storage import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class LanceState:
    """A version of a dataset, without its fragments."""

    version: int
    #: Version of the file format that new files are written in.
    storage_version: str
    #: Whether rows keep their ids when they move.
    has_stable_row_ids: bool
    #: Whether files lie outside of the root, as those of a shallow clone do.
    has_other_bases: bool
    #: Names of the indices.
    indices: tuple[str, ...]
    #: Numbers of the fragments that each part of an index knows, by the part's id.
    covered: Mapping[str, frozenset[int]]
    #: The same by the name of the index.
    known: Mapping[str, frozenset[int]]
    #: Columns that a commit under way adds to this version; None: none.
    added: pa.Schema | None = None

    def coverage(self, fragment: int) -> str:
        """Return what tells fragments apart that not the same parts of indices know."""
        return ",".join(sorted(part for part, known in self.covered.items() if fragment in known))


def load_snapshot(
    store: Store,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    statistics: Sequence[str] = (),
) -> Snapshot:
    """Return the table at `version`, or as it was at `timestamp`, or now."""
    if timestamp is not None:
        version = version_at(store, timestamp)
    dataset = open_dataset(store, version)
    with reading(store, dataset.version):
        state = state_of(dataset)
        at = utc(dataset.get_version()["timestamp"])
        files = file_table(store, dataset.get_fragments(), at=at)
        if statistics:
            bounds = unknown_bounds(dataset.schema, statistics, count=files.num_rows)
            files = files.append_column("bounds", bounds)
        return Snapshot(
            table=store.url,
            version=dataset.version,
            at=at,
            schema=dataset.schema,
            partition_columns=(),
            files=files,
            properties=dataset.config(),
            native=state,
            rules=_rules(dataset, state),
            # Every version is complete in itself: nothing is ever replayed.
            checkpoint_version=dataset.version,
        )


def table_head(store: Store, *, version: int | None = None) -> TableHead:
    """Return a version, the newest if None, without its fragments."""
    dataset = open_dataset(store, version)
    with reading(store, dataset.version):
        state = state_of(dataset)
        return TableHead(
            table=store.url,
            version=dataset.version,
            schema=dataset.schema,
            partition_columns=(),
            properties=dataset.config(),
            table_id=None,
            rules=_rules(dataset, state),
            transactions=LazyMarks(store),
            native=state,
        )


def evolved_head(store: Store, head: TableHead, added: pa.Schema) -> TableHead:
    """Return a version as it will be once it has the columns `added`, too."""
    dataset = evolved_dataset(store, open_dataset(store, head.version), added)
    state = replace(head.native, added=added)
    return replace(head, schema=dataset.schema, rules=_rules(dataset, state), native=state)


def version_times(store: Store) -> dict[int, datetime]:
    """Return when each existing version was committed, the oldest first."""
    dataset = open_dataset(store)
    with reading(store):
        times = {entry["version"]: utc(entry["timestamp"]) for entry in dataset.versions()}
    return dict(sorted(times.items()))


def named_files(store: Store, dataset: Any, *, from_version: int | None = None) -> pa.Table:
    """Return the files that versions name, from one on or of all: one row per version and file.

    CorruptLogError if one of these versions cannot be read: its files are unknown.
    """
    with reading(store):
        return dataset.tracked_files(min_version=from_version).read_all()


def version_at(store: Store, moment: datetime) -> int:
    """Return the version in force at `moment`; VersionNotFoundError if that is too long ago."""
    found = [version for version, at in version_times(store).items() if at <= moment]
    if not found:
        raise VersionNotFoundError(
            f"{store.url} has no version of {moment.isoformat()}, or none any more",
            table=store.url,
        )
    return max(found)


def state_of(dataset: Any) -> LanceState:
    """Return what a version says apart from its fragments."""
    indices = dataset.describe_indices()
    return LanceState(
        version=dataset.version,
        storage_version=dataset.data_storage_version,
        has_stable_row_ids=dataset.has_stable_row_ids,
        has_other_bases=bool(dataset.base_paths()),
        indices=tuple(sorted({index.name for index in indices})),
        covered={
            str(part.uuid): frozenset(part.fragment_ids)
            for index in indices
            for part in index.segments
        },
        known={
            index.name: frozenset(number for part in index.segments for number in part.fragment_ids)
            for index in indices
        },
    )


def _rules(dataset: Any, state: LanceState) -> str:
    """Return what files must be like that are written for a version."""
    columns = [
        [*path, number, str(kind)] for path, (number, kind) in column_numbers(dataset).items()
    ]
    return json.dumps([state.storage_version, state.has_stable_row_ids, columns])


def utc(moment: datetime) -> datetime:
    """Return a time that Lance hands out: of the local zone, without saying so."""
    return moment.astimezone(UTC)
