"""What became of the epochs of one writer."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

from lakehand.errors import EpochGapError
from lakehand.observe.logs import get_logger, log_event

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakehand.model.work import Receipt, StagedFile
    from lakehand.sink.committing import Commission
    from lakehand.sink.staging import Staging

__all__ = ["Epoch", "EpochState", "Epochs"]

_logger = get_logger(__name__)


class EpochState(StrEnum):
    """How far an epoch has come."""

    #: Takes rows.
    OPEN = "open"
    #: In the table before it began: its rows are dropped.
    SKIPPED = "skipped"
    #: All rows are in files; nobody sees them yet.
    STAGED = "staged"
    #: Nobody can say whether it is in the table: commit it again to find out.
    UNKNOWN = "unknown"
    #: In the table.
    COMMITTED = "committed"


class Epoch:
    """One epoch between its begin and its end."""

    def __init__(self, number: int, staging: Staging) -> None:
        self.number = number
        self.staging = staging
        self.state = EpochState.OPEN
        #: What went wrong while rows were written: the epoch can only be rolled back.
        self.failure: BaseException | None = None
        #: The work under way; kept, so that a call that timed out can be made again.
        self.writing: Future[tuple[StagedFile, ...]] | None = None
        self.committing: Future[Receipt | None] | None = None
        self.commission: Commission | None = None
        #: Whether another process was told of the files, and may commit them.
        self.is_handed_over = False
        #: The work that rolls it back, once that was asked for: rows and files go from then on.
        self.rolling_back: Future[None] | None = None

    def has_landed(self) -> bool:
        """Say whether a commit that nobody waited for any longer has succeeded all the same."""
        work = self.committing
        if work is None or not work.done() or work.cancelled():
            return False
        return work.exception() is None


class Epochs:
    """The order of epochs: which are in the table, which come next, which are missing."""

    def __init__(self, last: int | None, *, gaps: str, table: str, writer_id: str | None) -> None:
        #: Newest epoch that the table has of this writer; None if none.
        self.last = last
        #: Newest epoch that ended without rows, or is in the table.
        self._done = last
        self._gaps = gaps
        self._table = table
        self._writer_id = writer_id
        #: Missing epochs that were noticed.
        self.gaps_seen = 0

    def is_committed(self, epoch: int) -> bool:
        return self.last is not None and epoch <= self.last

    def check_next(self, epoch: int) -> None:
        """Raise if `epoch` must not begin now."""
        missing = 0 if self._done is None else epoch - self._done - 1
        if missing > 0 and self._gaps != "allow":
            self._notice(epoch, missing)

    def _notice(self, epoch: int, missing: int) -> None:
        message = (
            f"epoch {epoch} begins, and {missing} before it are missing: the last one of writer"
            f" {self._writer_id!r} in {self._table} is {self._done}"
        )
        if self._gaps == "refuse":
            raise EpochGapError(
                message,
                table=self._table,
                writer_id=self._writer_id,
                epoch=epoch,
                hint="write the missing epochs first, or set epoch_gaps to warn or allow",
            )
        self.gaps_seen += missing
        log_event(_logger, logging.WARNING, "epoch_gap", "%s", message, epoch=epoch)

    def committed(self, epoch: int) -> None:
        self.last = epoch
        self._done = epoch

    def ended_without_rows(self, epoch: int) -> None:
        self._done = epoch if self._done is None else max(epoch, self._done)
