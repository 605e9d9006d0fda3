"""Changes that become versions, and what becomes of those that lost to other writers."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand import errors
from lakehand.formats.lance.commit_records import (
    Record,
    commit_record,
    drop_pending,
    is_conflict,
    note_landed,
    put_pending,
    read_pending,
)
from lakehand.formats.lance.connect import (
    address,
    failure_of,
    listed_versions,
    load_lance,
    open_dataset,
    reading,
    said,
)
from lakehand.formats.lance.fragments import data_files, find_fragments, fragments_by_number
from lakehand.formats.lance.rewriting import account_of, new_fragments, tells_places
from lakehand.formats.lance.row_commits import commit_rows, put_restored, undo
from lakehand.formats.lance.snapshot import load_snapshot, named_files
from lakehand.model.work import Change, Proof, Receipt, Replacement
from lakehand.observe.steps import Step, reached
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

_EXISTS = re.compile(r"already exists", re.IGNORECASE)
#: Decided once for all time, when a dataset is created.
_STABLE_ROW_IDS = "enable_stable_row_ids"


def create_dataset(
    store: Store, schema: pa.Schema, *, partition_by: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Create an empty dataset; TableExistsError if there is one."""
    if partition_by:
        raise errors.RefusedError(
            f"{store.url} is not created: Lance has no partitions",
            table=store.url,
            operation="create",
            feature="partitions",
            hint="leave partition_by out, and cluster the table",
        )
    if not schema.names:
        raise errors.ValidationError("a table has at least one column", field="schema")
    try:
        dataset = load_lance().write_dataset(
            schema.empty_table(),
            address(store),
            mode="create",
            storage_options=store.connection_options() or None,
            enable_stable_row_ids=properties.get(_STABLE_ROW_IDS, "false").lower() == "true",
        )
    except (OSError, ValueError) as error:
        raise _not_created(store, error) from error
    config = {key: value for key, value in properties.items() if key != _STABLE_ROW_IDS}
    if config:
        dataset.update_config(config)


def _not_created(store: Store, error: Exception) -> errors.TableExistsError | errors.StorageError:
    if _EXISTS.search(str(error)):
        return errors.TableExistsError(f"there is a Lance table at {store.url}", table=store.url)
    return errors.StorageError(
        f"{store.url} cannot be created: {said(error, store)}", path=store.url
    )


_ROW_CHANGES = ("append", "overwrite", "delete", "update")


def commit_change(store: Store, change: Change, *, token: str, attempts: int) -> Receipt:
    """Commit `change`; groups whose fragments another writer changed are left out.

    After `attempts` commits from newer versions, where those are possible, it gives up.
    """
    if change.kind == "rewrite":
        return _Rewrite(store, change, token, attempts).commit()
    if change.kind == "restore":
        return _restore(store, change, token=token)
    if change.kind in _ROW_CHANGES:
        return commit_rows(store, change, token=token, attempts=attempts)
    raise errors.RefusedError(
        f"lakehand does not {change.operation} Lance tables",
        table=store.url,
        operation=change.operation,
    )


def find_commit(store: Store, token: str, *, after: int) -> int | None:
    """Return the version that carries `token`, looking at versions above `after`."""
    pending = read_pending(store, token)
    if pending is not None:
        version = _landed(store, pending)
        if version is not None:
            note_landed(store, pending, version=version)
        return version
    newer = [version for version in listed_versions(store) if version > after]
    records = ((version, commit_record(store, version)) for version in newer)
    return next((version for version, record in records if record and record.token == token), None)


class _Rewrite:
    """The commit of a rewrite under way."""

    def __init__(self, store: Store, change: Change, token: str, attempts: int) -> None:
        self._store = store
        self._change = change
        self._token = token
        self._most_attempts = attempts
        #: Version that is committed from.
        self._base = change.base_version
        self._left = list(change.replacements)
        self._dropped: list[int] = []
        self._attempts = 0

    def commit(self) -> Receipt:
        while True:
            record = self._record()
            self._attempts += 1
            put_pending(self._store, record)
            reached(Step.COMMIT_PREPARED)
            version = self._try(record)
            reached(Step.COMMIT_PUT)
            if version is not None:
                note_landed(self._store, record, version=version)
                reached(Step.COMMIT_CONFIRMED)
                return self._receipt(version)

    def _try(self, record: Record) -> int | None:
        """Return the version that was made; None if some groups were lost, and others are left."""
        try:
            dataset = open_dataset(self._store, self._base)
        except errors.VersionNotFoundError as error:
            drop_pending(self._store, self._token)
            raise errors.ReplanError(
                f"version {self._base} of {self._store.url} is gone, so it is unknown"
                " what changed since the plan was made",
                table=self._store.url,
                hint="plan again",
            ) from error
        failure = _put(self._store, dataset, self._left)
        try:
            version = _landed(self._store, record)
        except (errors.StorageError, errors.CorruptLogError) as error:
            raise self._unknown(error.message) from error
        if version is None:
            self._give_up_lost(failure)
        return version

    def _give_up_lost(self, failure: BaseException | None) -> None:
        """Leave out groups whose fragments are not as they were; raise if that saves nothing."""
        words = "no version has its files" if failure is None else said(failure, self._store)
        if failure is None or not is_conflict(failure):
            raise self._unknown(words)
        newest = load_snapshot(self._store)
        live = {file.path: file for file in data_files(newest.files)}
        left = [group for group in self._left if _is_untouched(group, live)]
        if len(left) == len(self._left) and self._may_follow(newest):
            self._base = newest.version
            return
        if not left or len(left) == len(self._left):
            drop_pending(self._store, self._token)
            raise errors.CommitConflictError(
                f"another writer changed what was rewritten of {self._store.url}: {words}",
                table=self._store.url,
                hint="nothing was committed; run again",
            )
        self._dropped += [group.group for group in self._left if group not in left]
        self._left = left

    def _unknown(self, words: str) -> errors.CommitUnknownError:
        return errors.CommitUnknownError(
            f"cannot tell whether a rewrite of {self._store.url} was committed: {words}",
            table=self._store.url,
            hint="the next run finds out; every file was kept",
        )

    def _may_follow(self, newest: Snapshot) -> bool:
        """Say whether the same groups may be committed from a newer version.

        They may if its indices, also those built concurrently, can be updated with the new places
        of rows: Lance records these if there was an index before. Fragments that are only partly
        indexed cannot be merged.
        """
        if newest.version == self._base or self._attempts >= self._most_attempts:
            return False
        base = open_dataset(self._store, self._change.base_version)
        if newest.schema != base.schema:
            return False
        return all(
            tells_places(group.adds)
            and len({newest.native.coverage(file.native["id"]) for file in group.removes}) == 1
            for group in self._left
        )

    def _record(self) -> Record:
        proofs = self._change.proof or {}
        chosen = [proofs[key] for group in self._left if (key := str(group.group)) in proofs]
        total = total_proof([Proof.from_json(proof) for proof in chosen])
        return Record(
            token=self._token,
            operation=self._change.operation,
            base_version=self._change.base_version,
            parameters={key: value for key, value in self._change.parameters.items() if value},
            proof=total.to_json() if total else None,
            outputs=tuple(file.path for group in self._left for file in group.adds),
        )

    def _receipt(self, version: int) -> Receipt:
        return Receipt(
            version=version,
            dropped=tuple(self._dropped),
            attempts=self._attempts,
            files_added=sum(len(group.adds) for group in self._left),
            files_removed=sum(len(group.removes) for group in self._left),
        )


def _put(store: Store, dataset: Any, groups: Sequence[Replacement]) -> BaseException | None:
    """Let Lance commit groups and update its indices; return the error."""
    with reading(store, dataset.version):
        loses_places = _loses_places(dataset, groups)
        known = fragments_by_number(dataset)
    if loses_places:
        return _put_moved(dataset, groups)
    optimize = load_lance().optimize
    rewrites = []
    for group in groups:
        find = partial(find_fragments, dataset, group.removes, table=store.url, known=known)
        account = account_of(group.adds, version=dataset.version, replaced=find)
        rewrites.append(optimize.RewriteResult.from_json(account))
    return failure_of(lambda: optimize.Compaction.commit(dataset, rewrites))


def _loses_places(dataset: Any, groups: Sequence[Replacement]) -> bool:
    """Say whether rows move where no index could follow them: by neither their place nor an id."""
    if dataset.has_stable_row_ids or not dataset.describe_indices():
        return False
    return not all(tells_places(group.adds) for group in groups)


def _put_moved(dataset: Any, groups: Sequence[Replacement]) -> BaseException | None:
    """Let Lance commit rows as new ones, which no index knows, so that searches read them."""
    lance = load_lance()
    new = [fragment for group in groups for fragment in new_fragments(group.adds)]
    operation = lance.LanceOperation.Update(
        removed_fragment_ids=sorted(
            file.native["id"] for group in groups for file in group.removes
        ),
        new_fragments=[
            lance.fragment.FragmentMetadata.from_json(json.dumps(fragment)) for fragment in new
        ],
    )
    version = dataset.version
    return failure_of(lambda: lance.LanceDataset.commit(dataset, operation, read_version=version))


def _is_untouched(group: Replacement, live: dict[str, Any]) -> bool:
    return all(
        (now := live.get(file.path)) is not None and now.native == file.native
        for file in group.removes
    )


def _landed(store: Store, record: Record) -> int | None:
    """Return the first version that has a file of `record`."""
    files = named_files(store, open_dataset(store), from_version=record.base_version + 1)
    ours = files.filter(pc.is_in(files["path"], value_set=pa.array(record.outputs, pa.string())))
    found: int | None = pc.min(ours["version"]).as_py()
    return found


def _restore(store: Store, change: Change, *, token: str) -> Receipt:
    """Make an earlier version the newest one; any commit since the base fails it."""
    dataset = open_dataset(store)
    if dataset.version != change.base_version:
        raise _outrun(store, change)
    reached(Step.COMMIT_PREPARED)
    version = put_restored(store, dataset, change.parameters["version"])
    if version != change.base_version + 1:
        undo(store, version)
        raise _outrun(store, change)
    record = Record(
        token=token,
        operation="restore",
        base_version=change.base_version,
        parameters=change.parameters,
    )
    note_landed(store, record, version=version)
    return Receipt(
        version=version,
        files_added=len(change.restored),
        files_removed=len(change.removes),
    )


def _outrun(store: Store, change: Change) -> errors.CommitConflictError:
    return errors.CommitConflictError(
        f"{store.url} has changed since version {change.base_version}, which was to be restored"
        " over",
        table=store.url,
        hint="nothing was committed; check the new version, then restore again",
    )
