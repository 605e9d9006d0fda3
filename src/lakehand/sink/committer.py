"""One commit for many writers: each epoch of a pipeline is one version."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self, Unpack

from lakehand.catalogs import open_named_store
from lakehand.errors import ReplanError, SinkStateError, ValidationError
from lakehand.model.work import Receipt, Transaction, require_epoch, require_writer_name
from lakehand.observe.clock import Clock, SystemClock
from lakehand.settings import Settings
from lakehand.sink.background import BackgroundMaintenance
from lakehand.sink.committing import RaceLimit
from lakehand.sink.descriptor import Descriptor, require_files, require_fit
from lakehand.sink.epochs import Epochs
from lakehand.sink.sink_options import SinkMetrics
from lakehand.sink.staging import DescribedFiles
from lakehand.sink.target import Target
from lakehand.sink.transaction import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from lakehand.settings.setting_types import WriteSettings
    from lakehand.storage import Store


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
        """`pipeline` is a unique name of the pipeline, the same after every restart."""
        self._pipeline = require_writer_name(pipeline, field="pipeline")
        self._settings = Settings(settings)
        store = open_named_store(uri, storage_options)
        self._target = Target(store.with_settings(self._settings), self._settings)
        self._clock = clock or SystemClock()
        self._session = uuid.uuid4().hex
        self._epochs: Epochs | None = None
        #: Transactions whose outcome is unknown, by epoch.
        self._open: dict[int, WriteTransaction] = {}
        self._metrics = SinkMetrics()
        self._background = BackgroundMaintenance(self._target, self._metrics, self._settings)

    def open(self) -> Self:
        """Read which epochs of this pipeline the table has: none if it does not exist yet."""
        last = None
        if self._target.find():
            last = self._target.head.transactions.get(self._pipeline)
        self._epochs = Epochs(
            last,
            gaps=self._settings.epoch_gaps,
            table=self._target.store.url,
            writer_id=self._pipeline,
        )
        self._background.start()
        return self

    def close(self) -> None:
        """Wait for background maintenance that is under way."""
        self._epochs = None
        self._background.close()

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
        """Commit all files of an epoch in one version; None if the table has it, or it has no rows.

        After CommitUnknownError call it again: it finds out, and commits at most once.
        """
        epochs, epoch = self._opened, require_epoch(epoch)
        if epochs.is_committed(epoch):
            return None
        epochs.check_next(epoch)
        described = _read(descriptors)
        transaction = self._open.get(epoch) or self._begin(epoch, described)
        if not transaction.files and self._settings.epoch_gaps != "refuse":
            epochs.ended_without_rows(epoch)
            return None
        try:
            receipt = self._commit(epoch, transaction)
        except ReplanError:
            for descriptor in described:
                require_fit(self._target, descriptor)
            raise
        epochs.committed(epoch)
        if receipt is not None:
            self._background.on_commit(receipt.version)
        return receipt

    def _commit(self, epoch: int, transaction: WriteTransaction) -> Receipt | None:
        self._open.pop(epoch, None)
        try:
            return transaction.commit()
        except BaseException:
            # One that is proved to be lost is not kept: the next call checks the files that it is
            # given against the table as it is then.
            if transaction.is_unknown:
                self._open[epoch] = transaction
            raise

    def _begin(self, epoch: int, descriptors: Sequence[Descriptor]) -> WriteTransaction:
        """Begin the commit of files that belong to their writers: it never discards them."""
        self._check(epoch, descriptors)
        files = tuple(file for descriptor in descriptors for file in descriptor.files)
        require_files(self._target, files)
        return WriteTransaction(
            target=self._target,
            staging=DescribedFiles(self._target, files, table_id=self._target.head.table_id),
            token=f"lakehand-{self._session}-{epoch:010d}",
            limit=RaceLimit.of(self._settings),
            clock=self._clock,
            # Not the version that the writers knew, which may be old: the files were just checked
            # against the newest version, and an append conflicts with no older version.
            base_version=self._target.base_version,
            mark=Transaction(application=self._pipeline, version=epoch),
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
