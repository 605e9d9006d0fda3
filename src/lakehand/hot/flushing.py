"""Changes of an epoch on their way into the cold table: once, however often that is tried."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
    ) -> None:
        """With a `key` rows take the place of those with the same one; else they are appended."""
        mode = {"write_mode": "upsert", "merge_key": key} if key else {"write_mode": "append"}
        self._sink = DeltaSink(
            store,
            writer_id=writer_id,
            **{
                **settings,
                **mode,
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
        if self._sink.epoch_state is not EpochState.UNKNOWN:
            self._give_up()
            if not self._sink.begin_epoch(epoch):
                self._sink.rollback_epoch()
                return Flushed(is_in_table=True, rows=0, deleted_keys=0)
            for entry in entries:
                self._sink.write(_as_changes(entry))
        receipt = self._sink.commit_epoch()
        counts = {kind: sum(e.rows.num_rows for e in entries if e.kind is kind) for kind in Kind}
        return Flushed(
            is_in_table=receipt is not None,
            rows=counts[Kind.ROWS],
            deleted_keys=counts[Kind.DELETED_KEYS],
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


def _as_changes(entry: Entry) -> pa.Table:
    """Return an entry as a sink takes it: rows as they are, deleted keys as such."""
    if entry.kind is Kind.ROWS:
        return entry.rows
    word = pa.repeat(pa.scalar("D"), entry.rows.num_rows)
    return entry.rows.append_column("_op", word)
