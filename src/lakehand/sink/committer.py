"""One commit for many writers: each epoch of a pipeline is one version.

Writers write files and send descriptors. The committer commits all descriptors of an epoch at once,
under the name of the pipeline, so that a committer that is started again knows where it stopped,
and two pipelines may write into one table.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import ReplanError, SinkStateError, ValidationError
from lakehand.model.work import Transaction
from lakehand.observe.clock import SystemClock
from lakehand.settings import Settings
from lakehand.sink.committing import Commission, commit_files
from lakehand.sink.context import SinkMetrics
from lakehand.sink.descriptors import Descriptor, rules_of
from lakehand.sink.epochs import Epochs
from lakehand.sink.target import Target
from lakehand.sink.upkeep import Upkeep
from lakehand.storage import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from lakehand.model.work import Receipt, StagedFile
    from lakehand.observe.clock import Clock

__all__ = ["DeltaCommitter"]


class DeltaCommitter:
    """Commits what the writers of one pipeline have written."""

    def __init__(
        self,
        uri: str | Path | Store,
        *,
        pipeline: str,
        storage_options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        """`pipeline` is a name of its own for each pipeline, the same one after every restart."""
        if not pipeline.strip():
            raise ValidationError("a pipeline must have a name", field="pipeline")
        self._pipeline = pipeline
        self._settings = Settings(settings)
        store = uri if isinstance(uri, Store) else open_store(uri, storage_options)
        self._target = Target(store, self._settings)
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
            gaps=self._settings["epoch_gaps"],
            table=self._target.store.url,
            writer_id=self._pipeline,
        )
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
        epochs = self._opened
        if epochs.is_committed(epoch):
            return None
        epochs.check_next(epoch)
        commission = self._open.get(epoch) or self._commission(epoch, _read(descriptors))
        if not commission.files and self._settings["epoch_gaps"] != "refuse":
            epochs.ended_without_rows(epoch)
            return None
        self._open[epoch] = commission
        retries = self._settings["max_retries"]
        receipt = commit_files(self._target, commission, max_retries=retries, clock=self._clock)
        del self._open[epoch]
        epochs.committed(epoch)
        if receipt is not None:
            self._upkeep.on_commit(receipt.version)
        return receipt

    def _commission(self, epoch: int, descriptors: Sequence[Descriptor]) -> Commission:
        self._check(epoch, descriptors)
        files = tuple(file for descriptor in descriptors for file in descriptor.files)
        self._check_files(files)
        bases = [self._target.base_version, *(one.base_version for one in descriptors)]
        return Commission(
            token=f"lakehand-{self._session}-{epoch:010d}",
            files=files,
            base_version=min(bases),
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
            self._check_table(descriptor)

    def _check_table(self, descriptor: Descriptor) -> None:
        for _ in range(2):
            head = self._target.head
            if (descriptor.table_id, descriptor.rules) == (head.table_id, rules_of(head)):
                return
            self._target.refresh()
        raise ReplanError(
            f"the files of writer {descriptor.writer!r} were written for another table than"
            f" {head.table} is now: its columns or its protocol have changed",
            table=head.table,
            expected_version=descriptor.base_version,
            actual_version=head.version,
            hint="nothing was committed; write the epoch again",
            retryable=False,
        )

    def _check_files(self, files: Sequence[StagedFile]) -> None:
        """Refuse files that are not there as they were described: a version must never name one."""
        found = {
            info.key: info.bytes for info in self._target.store.head_all(f.path for f in files)
        }
        missing = next((file for file in files if found.get(file.path) != file.bytes), None)
        if missing is not None:
            raise ValidationError(
                f"file {missing.path!r} of a descriptor is not in {self._target.store.url}, or is"
                " another one there",
                field="descriptors",
                value=missing.path,
                hint="nothing was committed; its writer has given the epoch up: write it again",
            )

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
