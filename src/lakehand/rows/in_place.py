"""The proof for files that are not written anew: each is read once, for all that is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.prove.digest import Digester
from lakehand.rows.place_set import PlaceSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.formats.rows import Positions
    from lakehand.formats.worker import Decoder, FormatWorker, TaskLimits
    from lakehand.model.work import DataFile, Digest

__all__ = ["InPlace", "digest_in_place"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InPlace:
    """Rows of files that were visible before, that go, and that readers will see."""

    before: Digest
    removed: Digest
    after: Digest


def digest_in_place(
    worker: FormatWorker,
    files: Sequence[DataFile],
    *,
    gone: Sequence[Positions],
    hidden: Sequence[Positions | None],
    limits: TaskLimits,
    decoder: Decoder,
    after_decoder: Decoder,
) -> InPlace:
    """Read `files`, of which the rows at `gone` go; `hidden` are those that storage will not show.

    None among them: the file goes. Rows that were hidden before and would come back are not seen
    here, so whoever calls counts what is hidden.
    """
    schema = worker.moved_rows
    before, removed, after = Digester(schema), Digester(schema), Digester(schema)
    is_gone = PlaceSet(gone)
    is_hidden = PlaceSet([np.empty(0, np.int64) if rows is None else rows for rows in hidden])
    goes = np.array([rows is None for rows in hidden], np.bool_)
    for batch in worker.hash_placed(files, limits=limits, decoder=decoder):
        numbers, positions = batch.column(2).to_numpy(), batch.column(3).to_numpy()
        _add(before, batch, None)
        _add(removed, batch, is_gone.holds(numbers, positions))
        if after_decoder == decoder:
            _add(after, batch, ~(goes[numbers] | is_hidden.holds(numbers, positions)))
    if after_decoder != decoder:
        for batch in worker.hash_placed(files, limits=limits, decoder=after_decoder):
            numbers, positions = batch.column(2).to_numpy(), batch.column(3).to_numpy()
            _add(after, batch, ~(goes[numbers] | is_hidden.holds(numbers, positions)))
    return InPlace(before=before.result(), removed=removed.result(), after=after.result())


def _add(digester: Digester, batch: pa.RecordBatch, chosen: np.ndarray | None) -> None:
    lanes = [batch.column(lane).to_numpy() for lane in range(2)]
    if chosen is not None:
        lanes = [lane[chosen] for lane in lanes]
    first, second = (int(np.sum(lane, dtype=np.uint64)) for lane in lanes)
    digester.add_sums(len(lanes[0]), first, second)
