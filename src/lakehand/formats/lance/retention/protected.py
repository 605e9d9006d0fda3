"""Every file that some version within a promise needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import RefusedError
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.files.fragments import DATA_DIRECTORY
from lakehand.formats.lance.log.snapshot import version_times
from lakehand.formats.lance.retention.branches import branch_points, shared_with_branches
from lakehand.model.retention import Protection

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from lakehand.storage import Store

__all__ = ["RETENTION", "protected_files", "protected_since", "tagged_versions"]

#: Files of writers that have not committed yet are safe for this long from Lance's own cleanup.
RETENTION = timedelta(days=7)
_NO_KEYS = pa.chunked_array([], pa.string())


def protected_files(
    store: Store,
    *,
    since: datetime,
    pinned_versions: Collection[int] = (),
    from_version: int | None = None,
    ignored_tags: Collection[str] = (),
) -> Protection:
    """Return the files of every version in force at `since` or later, and of pinned ones.

    Versions that have a tag or a branch are pinned.
    """
    times = version_times(store)
    oldest = max((version for version, at in times.items() if at <= since), default=min(times))
    if from_version is not None:
        oldest = min(oldest, max(from_version, min(times)))
    pinned = {*pinned_versions, *_tagged(store, ignored_tags)}
    _require_versions(store, pinned, times)
    pinned |= branch_points(store) & times.keys()
    named = open_dataset(store).tracked_files().read_all()
    in_force = pc.greater_equal(named["version"], oldest)
    chosen = pc.is_in(named["version"], value_set=pa.array(sorted(pinned), pa.int64()))
    return Protection(
        oldest_version=oldest,
        newest_version=max(times),
        keys=_keys(store, named.filter(in_force)),
        pinned_keys=_pinned_keys(store, named.filter(chosen)),
        names=_NO_KEYS,
    )


def protected_since(
    store: Store, *, version: int, ignored_tags: Collection[str] = ()
) -> Protection:
    """Return the files of versions after `version`, and of those with a tag or branch by now."""
    dataset = open_dataset(store)
    tags = {*_tagged(store, ignored_tags), *branch_points(store)}
    first = min((version + 1, *tags))
    named = dataset.tracked_files(min_version=first).read_all()
    chosen = pc.is_in(named["version"], value_set=pa.array(sorted(tags), pa.int64()))
    return Protection(
        oldest_version=version + 1,
        newest_version=max(dataset.version, version),
        keys=_keys(store, named.filter(pc.greater(named["version"], version))),
        pinned_keys=_pinned_keys(store, named.filter(chosen)),
        names=_NO_KEYS,
    )


def tagged_versions(store: Store) -> dict[str, int]:
    """Return the versions that have a tag, by its name."""
    tags = open_dataset(store).tags.list()
    return {name: tag["version"] for name, tag in tags.items() if tag["branch"] in (None, "main")}


def _tagged(store: Store, ignored: Collection[str]) -> set[int]:
    return {version for name, version in tagged_versions(store).items() if name not in ignored}


def _require_versions(store: Store, wanted: Collection[int], known: Collection[int]) -> None:
    missing = sorted(set(wanted) - set(known))
    if missing:
        raise RefusedError(
            f"version {missing[0]} of {store.url} is pinned or tagged, and its manifest is gone",
            table=store.url,
            operation="vacuum",
            version=missing[0],
            hint="nothing was deleted; remove the pin or the tag",
        )


def _pinned_keys(store: Store, named: pa.Table) -> pa.ChunkedArray:
    """Return the keys of files of chosen versions, and of all that branches need."""
    return _keys(store, pa.concat_tables([named, shared_with_branches(store)]))


def _keys(store: Store, named: pa.Table) -> pa.ChunkedArray:
    """Return the keys of files, with all that lies beside files of an index or of rows."""
    is_index = pc.equal(named["type"].cast(pa.string()), "index file")
    of_index = named["path"].filter(is_index).to_pylist()
    directories = sorted({path.rpartition("/")[0] for path in of_index})
    directories += _payload_directories(store, named["path"])
    beside = [info.key for directory in directories for info in store.list(directory)]
    return pc.unique(pa.chunked_array([*named["path"].chunks, pa.array(beside, pa.string())])).cast(
        pa.string()
    )


def _payload_directories(store: Store, paths: pa.ChunkedArray) -> list[str]:
    """Return where files that are named have payloads of their own: no manifest names these.

    Lance's own cleanup knows them by their directory, too. What format the newest version has says
    nothing: an older one, which is kept, may have another.
    """
    found = [directory.rstrip("/") for directory in store.list_directory(DATA_DIRECTORY)[0]]
    owners = pa.array([f"{directory}.lance" for directory in found], pa.string())
    is_named = pc.is_in(owners, value_set=paths.cast(pa.string()).combine_chunks())
    return [
        directory for directory, named in zip(found, is_named.to_pylist(), strict=True) if named
    ]
