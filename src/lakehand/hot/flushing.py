"""Changes of an epoch on their way into the cold table: once, however often that is tried."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError
from lakehand.hot.records import Kind
from lakehand.observe.logs import get_logger, log_event
from lakehand.sink.epochs import EpochState
from lakehand.sink.sink import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.hot.records import Entry
    from lakehand.storage import Store

__all__ = ["ColdWriter", "Flushed"]

_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flushed:
    """What became of an epoch that is done with."""

    #: Whether the table says so itself; else there was nothing in the epoch that it needs.
    is_in_table: bool
    rows: int
    deleted_keys: int


class ColdWriter:
    """A sink of the hot table's own."""

    def __init__(
        self,
        store: Store,
        *,
        writer_id: str,
        key: tuple[str, ...],
        settings: Mapping[str, Any],
        spark: Any = None,
    ) -> None:
        self._key = key
        self._sink = DeltaSink(
            store,
            writer_id=writer_id,
            spark=spark,
            **{
                **settings,
                "delivery": "exactly-once",
                "on_backpressure": "wait",
                "epoch_gaps": "allow",
                "create_table": False,
            },
        ).open()

    def write(self, epoch: int, entries: Sequence[Entry]) -> Flushed:
        """Write and commit the changes of an epoch.

        What it raises, the same call may be made again, with the same changes.
        """
        rows = [entry.rows for entry in entries if entry.kind is Kind.ROWS]
        if self._sink.epoch_state is not EpochState.UNKNOWN:
            self._give_up()
            if not self._sink.begin_epoch(epoch):
                self._sink.rollback_epoch()
                return Flushed(is_in_table=True, rows=0, deleted_keys=0)
            for part in rows:
                self._sink.write(part)
        receipt = self._sink.commit_epoch()
        return Flushed(
            is_in_table=receipt is not None,
            rows=sum(part.num_rows for part in rows),
            deleted_keys=0,
        )

    def _give_up(self) -> None:
        """End what an earlier try has left unfinished."""
        if self._sink.epoch_state is not None:
            self._sink.rollback_epoch()

    def close(self) -> None:
        try:
            self._sink.close()
        except LakehandError as error:
            message = "The sink of a hot table was not closed in order: %s"
            log_event(_logger, logging.WARNING, "hot_sink_close", message, error.message)
