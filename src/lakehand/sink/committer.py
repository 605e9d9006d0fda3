"""One commit for many writers: each epoch of a pipeline is one version."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import ReplanError, SinkStateError, ValidationError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.work import (
    MAX_EPOCH,
    StagedFile,
    Transaction,
    require_epoch,
    require_writer_name,
)
from lakehand.observe.clock import SystemClock
from lakehand.settings import Settings
from lakehand.sink.background import Upkeep
from lakehand.sink.committing import Commission, RaceLimit, commit_files
from lakehand.sink.epochs import Epochs
from lakehand.sink.options import SinkMetrics
from lakehand.sink.target import Target
from lakehand.storage import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Unpack

    from lakehand.model.table_head import TableHead
    from lakehand.model.work import Receipt
    from lakehand.observe.clock import Clock
    from lakehand.settings.setting_types import WriteSettings

__all__ = ["Descriptor", "SinkCommitter", "require_files", "require_fit", "rules_of"]


#: The only form there is so far.
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """Files of one epoch of one writer, complete and in no version."""

    writer: str
    epoch: int
    #: Of the table that the files were written for.
    table_id: str | None
    #: Fingerprint of what the table asks of files.
    rules: str
    #: Version that the writer knew.
    base_version: int
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> str:
        """Return the text to send to the committer."""
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what a writer sent; ValidationError if it is of a form that is not known."""
        value = _parse(text)
        version = value.get("version")
        if version != _VERSION:
            raise ValidationError(
                f"a descriptor of version {version!r} cannot be read: only {_VERSION} is known",
                field="version",
                value=version,
                hint="nothing was committed; use the same lakehand for writers and committer",
            )
        try:
            found = read_value(cls, value)
        except DocumentError as error:
            raise _unreadable(str(error)) from error
        if not 0 <= found.epoch <= MAX_EPOCH:
            raise _unreadable(f"{found.epoch} is no epoch")
        return found


def rules_of(head: TableHead) -> str:
    """Return a fingerprint of what a table asks of files."""
    return hashlib.sha256(head.rules.encode()).hexdigest()


def require_fit(target: Target, descriptor: Descriptor) -> None:
    """Raise ReplanError if the files were written for another table than `target` is now."""
    for _ in range(2):
        head = target.head
        if (descriptor.table_id, descriptor.rules) == (head.table_id, rules_of(head)):
            return
        target.refresh()
    raise ReplanError(
        f"the files of writer {descriptor.writer!r} were written for another table than"
        f" {head.table} is now: its columns or its protocol have changed",
        table=head.table,
        expected_version=descriptor.base_version,
        actual_version=head.version,
        hint="nothing was committed; write the epoch again",
        retryable=False,
    )


def require_files(target: Target, files: Sequence[StagedFile]) -> None:
    """Refuse files that are not there as they were described: a version must never name one."""
    found = {info.key: info.bytes for info in target.store.head_all(f.path for f in files)}
    missing = next((file for file in files if found.get(file.path) != file.bytes), None)
    if missing is not None:
        raise ValidationError(
            f"file {missing.path!r} of a descriptor is not in {target.store.url}, or is another"
            " one there",
            field="descriptors",
            value=missing.path,
            hint="nothing was committed; its writer has given the epoch up: write it again",
        )


def _parse(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except (DocumentError, TypeError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(reason: str) -> ValidationError:
    message = f"a descriptor cannot be read: {reason}"
    return ValidationError(message, field="descriptor", hint="nothing was committed")


class SinkCommitter:
    """Commits what the writers of one pipeline have written."""

    def __init__(
        self,
        uri: str | Path | Store,
        *,
        pipeline: str,
        storage_options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        **settings: Unpack[WriteSettings],
    ) -> None:
        """`pipeline` is a name of its own for each pipeline, the same one after every restart."""
        self._pipeline = require_writer_name(pipeline, field="pipeline")
        self._settings = Settings(settings)
        store = uri if isinstance(uri, Store) else open_store(uri, storage_options)
        self._target = Target(store.with_settings(self._settings), self._settings)
        self._clock = clock or SystemClock()
        self._session = uuid.uuid4().hex
        self._epochs: Epochs | None = None
        #: What nobody knows the outcome of yet, by epoch.
        self._open: dict[int, Commission] = {}
        self._metrics = SinkMetrics()
        self._upkeep = Upkeep(self._target, self._metrics, self._settings)

    def open(self) -> Self:
        """Learn what the table has of this pipeline. A table that is not there yet has nothing."""
        last = None
        if self._target.find():
            last = self._target.head.transactions.get(self._pipeline)
        self._epochs = Epochs(
            last,
            gaps=self._settings.epoch_gaps,
            table=self._target.store.url,
            writer_id=self._pipeline,
        )
        self._upkeep.start()
        return self

    def close(self) -> None:
        """Wait for upkeep that is under way."""
        self._epochs = None
        self._upkeep.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def last_committed_epoch(self) -> int | None:
        """Newest epoch that the table has of this pipeline; None if none."""
        return self._opened.last

    def commit(self, epoch: int, descriptors: Iterable[Descriptor | str]) -> Receipt | None:
        """Commit all files of an epoch in one version; None if it is there, or has no rows.

        After CommitUnknownError call it again: it finds out, and commits at most once.
        """
        epochs, epoch = self._opened, require_epoch(epoch)
        if epochs.is_committed(epoch):
            return None
        epochs.check_next(epoch)
        described = _read(descriptors)
        commission = self._open.get(epoch) or self._commission(epoch, described)
        if not commission.files and self._settings.epoch_gaps != "refuse":
            epochs.ended_without_rows(epoch)
            return None
        try:
            receipt = self._commit(epoch, commission)
        except ReplanError:
            for descriptor in described:
                require_fit(self._target, descriptor)
            raise
        epochs.committed(epoch)
        if receipt is not None:
            self._upkeep.on_commit(receipt.version)
        return receipt

    def _commit(self, epoch: int, commission: Commission) -> Receipt | None:
        self._open.pop(epoch, None)
        limit = RaceLimit.of(self._settings)
        try:
            return commit_files(self._target, commission, limit=limit, clock=self._clock)
        except BaseException:
            # One that is proved to be lost is not kept: the next call holds the files that it is
            # given against what has become of the table.
            if commission.is_unknown:
                self._open[epoch] = commission
            raise

    def _commission(self, epoch: int, descriptors: Sequence[Descriptor]) -> Commission:
        self._check(epoch, descriptors)
        files = tuple(file for descriptor in descriptors for file in descriptor.files)
        require_files(self._target, files)
        return Commission(
            token=f"lakehand-{self._session}-{epoch:010d}",
            files=files,
            table_id=self._target.head.table_id,
            # Not what the writers knew, which may be of long ago: the files were just held against
            # what the table asks of them now, and new files touch nothing that is there.
            base_version=self._target.base_version,
            transaction=Transaction(application=self._pipeline, version=epoch),
            parameters={"epoch": epoch, "writer": self._pipeline},
        )

    def _check(self, epoch: int, descriptors: Sequence[Descriptor]) -> None:
        if descriptors and not self._target.is_known:
            # Their writers have created it since.
            self._target.find()
        seen: set[str] = set()
        for descriptor in descriptors:
            if descriptor.epoch != epoch or descriptor.writer in seen:
                raise ValidationError(
                    f"epoch {epoch} cannot be committed with the descriptor of writer"
                    f" {descriptor.writer!r} for epoch {descriptor.epoch}: there must be one of"
                    " each writer, and for this epoch",
                    field="descriptors",
                )
            seen.add(descriptor.writer)
            require_fit(self._target, descriptor)

    @property
    def _opened(self) -> Epochs:
        if self._epochs is None:
            url = self._target.store.url
            message = f"the committer of {url} is not open"
            raise SinkStateError(message, table=url, writer_id=self._pipeline)
        return self._epochs


def _read(descriptors: Iterable[Descriptor | str]) -> list[Descriptor]:
    return [
        one if isinstance(one, Descriptor) else Descriptor.from_json(one) for one in descriptors
    ]
