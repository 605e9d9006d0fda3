"""Row changes as one version, rebased over concurrent commits."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.formats.lance.commit_records import (
    PROPERTY,
    Record,
    find_token,
    is_conflict,
    newest_marks,
    note_marks,
    properties_of,
)
from lakehand.formats.lance.connect import (
    failure_of,
    is_lance_failure,
    load_lance,
    open_dataset,
    reading,
    said,
)
from lakehand.formats.lance.dataset_cache import evolved_dataset, untold_columns
from lakehand.formats.lance.fragments import (
    column_numbers,
    fragments_by_number,
    has_fragments,
    keeps_columns,
)
from lakehand.formats.lance.rewriting import new_fragments
from lakehand.model.work import Change, Proof, Receipt
from lakehand.observe.steps import Step, reached
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.storage import Store

#: `Manifest.max_fragment_id` of Lance's table format; absent while there was no fragment.
_FIELD = 11
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5
_MORE = 0x80


def next_fragment_number(dataset: Any) -> int:
    """Return the number of the fragment that comes next."""
    known = [fragment.fragment_id for fragment in dataset.get_fragments()]
    manifest = dataset._ds.serialized_manifest()  # noqa: SLF001  there is no other way to it
    found = [value for field, value in _numbers(manifest) if field == _FIELD]
    if known and (not found or found[-1] < max(known)):
        raise errors.CorruptLogError(
            f"version {dataset.version} does not say which numbers of fragments were used",
            version=dataset.version,
        )
    return max([*found, *known], default=-1) + 1


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield the fields of a message that are numbers."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield field, value
        elif kind == _BYTES:
            length, place = _varint(message, place)
            place += length
        elif kind in (_LONG, _SHORT):
            place += 8 if kind == _LONG else 4
        else:
            raise errors.CorruptLogError("a manifest of Lance cannot be understood")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & ~_MORE) << shift
        shift += 7
        if not byte & _MORE:
            return value, place


#: Lance says so before it writes anything.
_REFUSED = re.compile(r"Invalid user input")


def put_restored(store: Store, dataset: Any, wanted: int) -> int:
    """Let Lance make a version with the content of `wanted`; return its number.

    Lance lets it pass over whatever landed since `dataset`. RefusedError if it does not write such
    a version, as one of the first file format with dictionaries: nothing was committed then.
    """
    lance = load_lance()
    operation = lance.LanceOperation.Restore(wanted)
    try:
        restored = lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        if _REFUSED.search(str(error)):
            raise errors.RefusedError(
                f"version {wanted} of {store.url} is not restored, because Lance cannot write it"
                f" again: {said(error, store)}",
                table=store.url,
                operation="restore",
                version=wanted,
                hint="nothing was changed; read that version, and write its rows into a new table",
            ) from None
        raise errors.CommitUnknownError(
            f"cannot tell whether version {wanted} of {store.url} was restored:"
            f" {said(error, store)}",
            table=store.url,
            hint="check the history before you restore again",
        ) from error
    return int(restored.version)


def undo(store: Store, version: int) -> None:
    """Put the content in force again that was before `version`, which should not have landed.

    CommitUnknownError if others have built upon it already.
    """
    newest = open_dataset(store)
    try:
        if newest.version == version and put_restored(store, newest, version - 1) == version + 1:
            return
    except errors.RefusedError as error:
        raise errors.CommitUnknownError(
            f"version {version} of {store.url} was committed and does not fit the one before it:"
            f" {error.message}",
            table=store.url,
            hint=f"compare it with version {version - 1}",
        ) from error
    raise errors.CommitUnknownError(
        f"version {version} of {store.url} was committed and does not fit the one before it, and"
        " others have committed since",
        table=store.url,
        hint=f"compare it with version {version - 1}, and restore that one if need be",
    )


def commit_rows(store: Store, change: Change, *, token: str, attempts: int) -> Receipt:
    """Commit rows that are appended, replaced or deleted, in a limited number of attempts.

    Raises CommitConflictError or ReplanError (nothing was committed) or CommitUnknownError.
    """
    return _RowCommit(store, change, token, attempts).commit()


class _RowCommit:
    """A commit under way."""

    def __init__(self, store: Store, change: Change, token: str, attempts: int) -> None:
        self._store = store
        self._change = change
        self._token = token
        self._most_attempts = attempts

    def commit(self) -> Receipt:
        for attempt in range(1, self._most_attempts + 1):
            marks = newest_marks(self._store) if self._change.transaction else {}
            done = self._earlier(marks)
            if done is not None:
                return done
            version = self._try(marks)
            if version is not None:
                return self._receipt(version, attempts=attempt)
        raise self._outrun("others committed faster, again and again")

    def _earlier(self, marks: Mapping[str, int]) -> Receipt | None:
        """Return what says that this very mark is in the table already."""
        mark = self._change.transaction
        if mark is None or not mark.is_in(marks):
            return None
        return Receipt(version=open_dataset(self._store).version, already_committed=True)

    def _try(self, marks: Mapping[str, int]) -> int | None:
        """Return the new version; None if the commit is to be retried on a newer one."""
        read, newest = self._read(), open_dataset(self._store)
        try:
            with reading(self._store, newest.version):
                self._require_fit(read, newest)
                self._require_all_read(newest)
        except errors.CommitError:
            # What is in the way may be this very commit, whose answer was lost.
            version = find_token(self._store, self._token, after=read.version)
            if version is None:
                raise
            return version
        # A mark counts only if it is compared with all others: such a change is made from the
        # newest version, and lost if that is the newest no longer.
        is_bound = bool(self._change.removes) or self._change.kind == "update"
        base = read if is_bound or self._change.transaction is None else newest
        properties = self._properties(marks)
        with reading(self._store, base.version):
            transaction = load_lance().Transaction(
                read_version=base.version,
                operation=self._operation(base),
                transaction_properties=properties,
            )
        reached(Step.COMMIT_PREPARED)
        failure = _put(base, transaction)
        reached(Step.COMMIT_PUT)
        version = self._landed(after=base.version, failure=failure)
        if version is None:
            return None
        self._require_still_fit(read, version, seen=newest.version)
        if self._change.transaction is not None:
            note_marks(self._store, properties_of(properties), version=version)
        reached(Step.COMMIT_CONFIRMED)
        return version

    def _read(self) -> Any:
        """Return the version that the change was made for."""
        try:
            return open_dataset(self._store, self._change.base_version)
        except errors.VersionNotFoundError as error:
            raise self._replan("its version is gone") from error

    def _require_fit(self, read: Any, newest: Any) -> None:
        """Raise unless rows mean the same in `newest`, and what they replace is as it was read.

        Lance asks for neither: its numbers of columns and fragments may be those of others by now.
        """
        change = self._change
        if newest.version == read.version:
            return
        is_same = (
            newest.lance_schema.to_pyarrow() == read.lance_schema.to_pyarrow()
            and column_numbers(newest) == column_numbers(read)
        )
        must_be_same = change.transaction is not None or bool(change.native)
        if not keeps_columns(read, newest) or (must_be_same and not is_same):
            raise self._replan("its columns changed")
        if change.removes and not has_fragments(newest, change.removes):
            raise self._outrun("what was to be replaced is not as it was")

    def _require_all_read(self, newest: Any) -> None:
        """Raise if there are rows that a change of what it has read does not know.

        Those that land while it is put itself count as having come after it.
        """
        change = self._change
        if not change.reads_rows or newest.version == change.base_version:
            return
        known = fragments_by_number(self._read())
        if not fragments_by_number(newest).keys() <= known.keys():
            raise self._outrun("it has rows that were not read")

    def _require_still_fit(self, read: Any, version: int, *, seen: int) -> None:
        """Raise, with nothing changed, if what landed between the last look and `version` matters.

        To append with a mark is to lose to all that does.
        """
        if version == seen + 1:
            return
        try:
            self._require_fit(read, open_dataset(self._store, version - 1))
        except errors.CommitError:
            undo(self._store, version)
            raise

    def _operation(self, base: Any) -> Any:
        operations, change = load_lance().LanceOperation, self._change
        new = _described(new_fragments(change.adds))
        if change.native and change.kind != "append":
            raise self._refused_columns()
        if change.kind == "append" and change.transaction is None and not change.native:
            return operations.Append(new)
        if not has_fragments(base, change.removes):
            raise self._outrun("what was to be replaced is not in its version")
        if change.kind in ("append", "update"):
            return self._merge(base)
        removed = {file.native["id"] for file in change.removes}
        kept = [fragment for fragment in new if fragment.id in removed]
        gone = sorted(removed - {fragment.id for fragment in kept})
        if change.kind == "delete":
            condition = change.parameters.get("where") or change.operation
            return operations.Delete(kept, gone, condition)
        return operations.Update(removed_fragment_ids=sorted(removed), new_fragments=new)

    def _merge(self, base: Any) -> Any:
        """Return the one operation that loses to any other that brought or changed rows.

        It takes all fragments of the table, so those that lost all rows stay, with all of them
        hidden.
        """
        change, replaced = self._change, {file.path for file in self._change.removes}
        hidden = _described(new_fragments([file for file in change.adds if file.path in replaced]))
        new = _described(new_fragments([file for file in change.adds if file.path not in replaced]))
        known = {fragment.fragment_id: fragment.metadata for fragment in base.get_fragments()}
        known |= {fragment.id: fragment for fragment in hidden}
        added = untold_columns(change.native)
        columns = base if added is None else evolved_dataset(self._store, base, added)
        return load_lance().LanceOperation.Merge(
            [*known.values(), *_numbered(base, new)],
            columns.lance_schema,
            preserves_nullability=True,
        )

    def _landed(self, *, after: int, failure: BaseException | None) -> int | None:
        """Return the version that has this commit; None if it is to be retried."""
        try:
            version = find_token(self._store, self._token, after=after)
        except (errors.StorageError, errors.CorruptLogError) as error:
            raise self._unknown(error.message) from error
        if version is None and failure is None:
            raise self._unknown("no version has it")
        if version is None and failure is not None:
            self._judge(failure)
        return version

    def _judge(self, failure: BaseException) -> None:
        """Raise the failure of a commit that no version has, unless it may be retried."""
        words = said(failure, self._store)
        if not is_conflict(failure):
            raise self._unknown(words)
        if self._change.kind != "append":
            raise self._outrun(words)
        if self._change.transaction is None:
            raise self._replan(words)

    def _refused_columns(self) -> errors.RefusedError:
        return errors.RefusedError(
            f"rows of {self._store.url} are not overwritten by rows with new columns: Lance does"
            " not do both in one commit",
            table=self._store.url,
            operation=self._change.operation,
            feature="evolution",
            hint="nothing was committed; append a row with the new columns first",
        )

    def _unknown(self, words: str) -> errors.CommitUnknownError:
        return errors.CommitUnknownError(
            f"cannot tell whether a version of {self._store.url} was committed: {words}",
            table=self._store.url,
            hint="every file was kept; call again to find out",
        )

    def _outrun(self, words: str) -> errors.CommitConflictError:
        return errors.CommitConflictError(
            f"another writer changed {self._store.url} during the operation: {words}",
            table=self._store.url,
            hint="nothing was committed; run again",
        )

    def _replan(self, words: str) -> errors.ReplanError:
        return errors.ReplanError(
            f"{self._store.url} is not as it was at version {self._change.base_version}: {words}",
            table=self._store.url,
            hint="nothing was committed; write the rows for the newest version",
        )

    def _properties(self, marks: Mapping[str, int]) -> dict[str, str]:
        change, proofs = self._change, self._change.proof or {}
        total = total_proof([Proof.from_json(proof) for proof in proofs.values()])
        record = Record(
            token=self._token,
            operation=change.operation,
            base_version=change.base_version,
            parameters={key: value for key, value in change.parameters.items() if value},
            proof=total.to_json() if total else None,
            outputs=tuple(file.path for file in change.adds),
        )
        mark = change.transaction
        known = {**marks, mark.application: mark.version} if mark else {}
        return {PROPERTY: json.dumps({**json.loads(record.to_bytes()), "marks": known})}

    def _receipt(self, version: int, *, attempts: int) -> Receipt:
        return Receipt(
            version=version,
            attempts=attempts,
            files_added=len(self._change.adds),
            files_removed=len(self._change.removes),
        )


def _put(base: Any, transaction: Any) -> BaseException | None:
    """Let Lance commit; return the error."""
    return failure_of(lambda: load_lance().LanceDataset.commit(base, transaction))


def _described(fragments: list[dict[str, Any]]) -> list[Any]:
    metadata = load_lance().fragment.FragmentMetadata
    return [metadata.from_json(json.dumps(fragment)) for fragment in fragments]


def _numbered(base: Any, new: list[Any]) -> list[Any]:
    """Return fragments under the numbers that Lance would give them."""
    first = next_fragment_number(base)
    numbered = [{**fragment.to_json(), "id": first + n} for n, fragment in enumerate(new)]
    return _described(numbered)
