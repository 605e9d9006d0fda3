"""Unreadable manifests moved away, earlier versions restored, indices brought up to date."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitConflictError, CorruptFileError, CorruptLogError, LakehandError
from lakehand.formats.lance.checks import check_log
from lakehand.formats.lance.commit_records import is_conflict
from lakehand.formats.lance.connect import (
    VERSION_HINT,
    is_lance_failure,
    open_dataset,
    reading,
    said,
)
from lakehand.formats.lance.fragments import data_files, fragment_keys
from lakehand.formats.lance.snapshot import LanceState, load_snapshot
from lakehand.model.verification import LogRepair, Refusal, Repair
from lakehand.model.work import Change, DataFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

#: Indices that Lance keeps for itself begin so.
_OWN = "__"
_ATTEMPTS = 5


def update_indices(store: Store, *, since: LanceState | None = None) -> tuple[str, ...]:
    """Have Lance add rows that they do not know to indices; return the names of these indices.

    With `since` only to those that knew fragments of that version which are gone.

    CommitConflictError if concurrent writers kept changing the table; nothing was changed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        dataset = open_dataset(store)
        with reading(store, dataset.version):
            behind = tuple(sorted(_behind(dataset, since)))
        if not behind:
            return ()
        try:
            dataset.optimize.optimize_indices(index_names=list(behind))
        except BaseException as error:
            if not is_lance_failure(error):
                raise
            if not is_conflict(error) or attempt == _ATTEMPTS:
                raise _failure(store, behind, error) from None
        else:
            return behind
    raise AssertionError("every attempt returns or raises")


def _behind(dataset: Any, since: LanceState | None) -> Iterator[str]:
    """Yield the names of indices that do not know all fragments."""
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    for index in dataset.describe_indices():
        known = {number for part in index.segments for number in part.fragment_ids}
        is_concerned = since is None or since.known.get(index.name, frozenset()) - fragments
        if is_concerned and not index.name.startswith(_OWN) and fragments - known:
            yield index.name


def _failure(
    store: Store, names: tuple[str, ...], error: BaseException
) -> CommitConflictError | CorruptFileError:
    kind = CommitConflictError if is_conflict(error) else CorruptFileError
    return kind(
        f"indices of {store.url} ({', '.join(names)}) are not up to date: {said(error, store)}",
        table=store.url,
        hint="searches find all rows as before, only slower; run again",
    )


_ASIDE = "_lakehand/aside"
_OLDER = (
    "no newer version needs it, but vacuum deletes nothing while it cannot be read: bring its"
    " manifest back, or accept the loss of data"
)
_CONSENT = "what it brought would be lost: bring its manifest back, or accept the loss of data"
_UNREACHED = "it could not be read this time, which does not prove that it is damaged: run again"
_HOPELESS = "no version can be read: bring a manifest back from a backup"


def repair_log(store: Store, *, accept_data_loss: bool, dry_run: bool) -> LogRepair:
    """Back up and remove unreadable manifests, if the loss is accepted and another is readable."""
    check = check_log(store)
    newest = check.readable_version
    broken = {found.version: found.path for found in check.findings if found.version and found.path}
    corrupt = {version for version in broken if _is_corrupt(store, version)}
    lost = _lost(newest, broken, corrupt) if accept_data_loss and newest is not None else {}
    refused = tuple(
        _refusal(version, newest, is_corrupt=version in corrupt)
        for version in broken
        if version not in lost
    )
    aside = _set_aside(store, lost) if lost and not dry_run else None
    repairs = () if newest is None else tuple(_repairs(newest, lost))
    return LogRepair(repairs=repairs, refused=refused, aside=aside)


def _lost(newest: int, broken: Mapping[int, str], corrupt: Collection[int]) -> dict[int, str]:
    """Return the manifests that are given up; of those above `newest` all, or none."""
    newer = [version for version in broken if version > newest]
    is_sure = all(version in corrupt for version in newer)
    return {
        version: key
        for version, key in broken.items()
        if version in corrupt and (version < newest or is_sure)
    }


def _repairs(newest: int, lost: Mapping[int, str]) -> Iterator[Repair]:
    newer = {version: key for version, key in lost.items() if version > newest}
    if newer:
        yield Repair(
            name="forget_versions",
            message=f"remove the unreadable versions above {newest}",
            paths=tuple(newer.values()),
            loses=f"what versions {min(newer)} to {max(newer)} brought",
        )
    older = {version: key for version, key in lost.items() if version < newest}
    if older:
        names = ", ".join(map(str, sorted(older)))
        yield Repair(
            name="forget_history",
            message=f"remove the unreadable manifests of older versions: {names}",
            paths=tuple(older.values()),
            loses=f"versions {names} can no longer be read; no rows of the newest version are lost",
        )


def _is_corrupt(store: Store, version: int) -> bool:
    """Say whether a version itself is broken, and not the way to it."""
    try:
        load_snapshot(store, version=version)
    except CorruptLogError:
        return True
    except LakehandError:
        return False
    return False


def _refusal(version: int, newest: int | None, *, is_corrupt: bool) -> Refusal:
    if newest is None:
        return Refusal(name="corrupt_commit", version=version, reason=_HOPELESS)
    if not is_corrupt:
        return Refusal(name="corrupt_commit", version=version, reason=_UNREACHED)
    reason = _CONSENT if version > newest else _OLDER
    return Refusal(
        name="corrupt_commit", version=version, reason=reason, consent=("accept_data_loss",)
    )


def _set_aside(store: Store, keys: Mapping[int, str]) -> str:
    """Copy manifests out of the way, then delete them, the newest first."""
    directory = f"{_ASIDE}/{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    for key in keys.values():
        store.put(f"{directory}/{key}", store.get(key))
    # The hint names a version that is about to go.
    store.delete([VERSION_HINT])
    for version in sorted(keys, reverse=True):
        store.delete([keys[version]])
    return directory


def restoring_change(snapshot: Snapshot, wanted: Snapshot) -> Change:
    """Return the change from `snapshot`, the newest version, back to the content of `wanted`."""
    live, kept = fragment_keys(snapshot.files), fragment_keys(wanted.files)
    is_described_alike = (snapshot.schema, snapshot.properties) == (
        wanted.schema,
        wanted.properties,
    )
    return Change(
        kind="restore",
        base_version=snapshot.version,
        operation="restore",
        parameters={"version": wanted.version},
        removes=data_files(snapshot.files, _rows_beyond(live, kept)),
        restored=data_files(wanted.files, _rows_beyond(kept, live)),
        native=() if is_described_alike else ({"version": wanted.version},),
        reads_rows=True,
    )


def _rows_beyond(keys: Sequence[str], others: Sequence[str]) -> list[int]:
    known = set(others)
    return [row for row, key in enumerate(keys) if key not in known]


def missing_files(store: Store, files: Sequence[DataFile]) -> tuple[str, ...]:
    """Return what `files` need to be read and storage does not have."""
    wanted = [key for file in files for key in (*file.native["files"], file.native["deletions"])]
    keys = list(dict.fromkeys(key for key in wanted if key))
    found = {info.key for info in store.head_all(keys)}
    return tuple(key for key in keys if key not in found)
