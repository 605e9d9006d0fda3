"""Every file that a version within the retention needs, and pins as tags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import RefusedError, ValidationError
from lakehand.formats.lance.connect import (
    DATA_DIRECTORY,
    MANIFESTS,
    address,
    is_lance_failure,
    open_dataset,
    reading,
    said,
    translated,
)
from lakehand.formats.lance.history import history, iter_history
from lakehand.formats.lance.row_commits import commit_rows
from lakehand.formats.lance.snapshot import named_files, version_times
from lakehand.model.maintenance import OldValues
from lakehand.model.retention import Protection
from lakehand.model.work import Change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from lakehand.model.reports import HistoryEntry
    from lakehand.storage import Store

#: Manifests are deleted like data: a version without its files is none. Writers on local disk that
#: are killed leave what they had begun: `.tmp` and six letters, or a name with `#` and a number.
_KNOWN = (
    r"^((data/[^/]+\.lance|data/[^/]+/[^/]+\.blob|_deletions/[^/]+\.(arrow|bin)"
    r"|_transactions/[^/]+\.txn|_versions/\d+\.manifest)(#\d+)?"
    r"|data/\.tmp\w{6}|_indices/[^/]+/[^/]+)$"
)
_DIRECTORIES = ("data", "_deletions", "_indices", "_transactions", "_versions")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNames:
    """Tells what versions are made of by its keys; everything else is left alone."""

    @property
    def first_to_go(self) -> str | None:
        """Manifests: a version that can be opened has all of its files, and may get a tag."""
        return MANIFESTS

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether a version may be made of it."""
        return pc.match_substring_regex(keys, pattern=_KNOWN)

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        return directory in _DIRECTORIES or directory.startswith(("_indices/", "data/"))


_SCHEME = re.compile(r"^[a-z0-9+]+://")
_TREE = "tree/"


def branches(store: Store) -> dict[str, int | None]:
    """Return the version of the main branch that each branch began with; None: of another one."""
    dataset = open_dataset(store)
    with translated(store, "to read the branches"):
        found = dataset.branches.list().items()
    return {
        name: branch["parent_version"] if branch["parent_branch"] is None else None
        for name, branch in found
    }


def branch_points(store: Store) -> set[int]:
    """Return the versions of the main branch that branches began with."""
    return {version for version in branches(store).values() if version is not None}


def shared_with_branches(store: Store) -> pa.Table:
    """Return the files in the root that versions of branches name, as `tracked_files` tells them.

    RefusedError if a branch names files that are neither there nor of a branch.
    """
    main = open_dataset(store)
    with translated(store, "to read the branches"):
        parts = list(_shared(store, main))
    return pa.concat_tables(parts) if parts else named_files(store, main).slice(0, 0)


def _shared(store: Store, main: Any) -> Iterator[pa.Table]:
    root = _plain(address(store))
    for name in main.branches.list():
        named = main.checkout_version((name, None)).tracked_files().read_all()
        bases = named["base_uri"].cast(pa.string())
        known = pc.unique(bases).to_pylist()
        strange = [base for base in known if not _is_within(_plain(base), root)]
        if strange:
            raise RefusedError(
                f"vacuum is refused on {store.url}: its branch {name!r} names files outside of its"
                " root, which cannot be told from its own",
                table=store.url,
                operation="vacuum",
                feature="branches",
                hint="nothing was deleted; delete the branch if it is no longer needed",
            )
        own = pa.array([base for base in known if _plain(base) == root], pa.string())
        yield named.filter(pc.is_in(bases, value_set=own))


def _is_within(base: str, root: str) -> bool:
    return base == root or base.startswith(f"{root}/{_TREE}")


def _plain(base: str) -> str:
    return _SCHEME.sub("", base).strip("/")


#: Operations after which every row of the version before is still there.
_KEEPS_ROWS = frozenset({"Append", "CreateIndex", "UpdateConfig", "append", "purge"})
#: What a commit may say of itself that names values.
_PREDICATES = ("predicate", "where")
_OWN = "__"


def find_old_values(store: Store) -> OldValues:
    """Return the newest version that removed rows or columns, and indices that know deleted rows.

    Manifests and transactions are deleted with the files of their versions, by vacuum.
    """
    clean = _first_without_values(store)
    dataset = open_dataset(store)
    with reading(store, dataset.version):
        indices = tuple(sorted(_stale_indices(dataset)))
    return OldValues(
        version=clean.version if clean else None,
        at=clean.at if clean else None,
        in_history=False,
        indices=indices,
    )


def add_version_after_predicate(store: Store, *, attempts: int) -> bool:
    """Commit a version without changes if the newest one was made by a predicate.

    What names the predicate stays as long as its version, and the newest version stays for good.
    """
    (newest,) = history(store, limit=1)
    if not _names_values(newest.parameters):
        return False
    change = Change(kind="append", base_version=newest.version, operation="purge")
    commit_rows(store, change, token=f"lakehand-purge-{uuid4().hex}", attempts=attempts)
    return True


def _first_without_values(store: Store) -> HistoryEntry | None:
    """Return the version of the newest removal, or the one after it if that names a predicate.

    None if no version that is still there removed anything.
    """
    later = None
    for entry in iter_history(store):
        if entry.operation not in _KEEPS_ROWS:
            return later if later is not None and _names_values(entry.parameters) else entry
        later = entry
    return None


def _names_values(parameters: Mapping[str, Any]) -> bool:
    return any(parameters.get(name) for name in _PREDICATES)


def _stale_indices(dataset: Any) -> Iterator[str]:
    """Yield indices that know fragments which are gone: Lance leaves their rows in the index."""
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    for index in dataset.describe_indices():
        known = {number for part in index.segments for number in part.fragment_ids}
        if not index.name.startswith(_OWN) and known - fragments:
            yield index.name


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
    named = named_files(store, open_dataset(store))
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
    named = named_files(store, dataset, from_version=first)
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
    dataset = open_dataset(store)
    with translated(store, "to read the tags"):
        tags = dataset.tags.list()
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
    """Return the keys of files, with the directories of index files and of row files."""
    is_index = pc.equal(named["type"].cast(pa.string()), "index file")
    of_index = named["path"].filter(is_index).to_pylist()
    directories = sorted({path.rpartition("/")[0] for path in of_index})
    directories += _payload_directories(store, named["path"])
    beside = [info.key for directory in directories for info in store.list(directory)]
    return pc.unique(pa.chunked_array([*named["path"].chunks, pa.array(beside, pa.string())])).cast(
        pa.string()
    )


def _payload_directories(store: Store, paths: pa.ChunkedArray) -> list[str]:
    """Return the directories with separate payloads of named files: no manifest names these.

    Lance's own cleanup knows them by their directory, too. What format the newest version has says
    nothing: an older one, which is kept, may have another.
    """
    found = [directory.rstrip("/") for directory in store.list_directory(DATA_DIRECTORY)[0]]
    owners = pa.array([f"{directory}.lance" for directory in found], pa.string())
    is_named = pc.is_in(owners, value_set=paths.cast(pa.string()).combine_chunks())
    return [
        directory for directory, named in zip(found, is_named.to_pylist(), strict=True) if named
    ]


def put_tag(store: Store, name: str, version: int) -> None:
    """Give a version a tag; ValidationError if there is a tag of that name, or cannot be one."""
    dataset = open_dataset(store)
    try:
        dataset.tags.create(name, version)
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        raise ValidationError(
            f"version {version} of {store.url} cannot be tagged {name!r}: {said(error, store)}",
            field="name",
            value=name,
        ) from None


def drop_tag(store: Store, name: str, version: int) -> None:
    """Remove a tag, if it exists and names this version."""
    dataset = open_dataset(store)
    if tagged_versions(store).get(name) == version:
        with translated(store, "to drop a tag"):
            dataset.tags.delete(name)
