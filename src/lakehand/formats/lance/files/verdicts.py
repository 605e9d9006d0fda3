"""Which fragments a condition is true for: read off their rows, as Lance keeps no bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakehand.formats.rows import PlacedColumns
from lakehand.formats.worker import TaskLimits
from lakehand.model.snapshot import FILE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.worker import FormatWorker
    from lakehand.model.work import DataFile

__all__ = ["read_verdicts"]


def read_verdicts(
    worker: FormatWorker, files: Sequence[DataFile], predicate: Predicate
) -> pa.Array:
    """Say of each file whether a condition is true for all, none or some of its visible rows."""
    from lakehand.expressions.pruning import ALL, NONE, UNKNOWN  # SQL takes long to import

    columns = predicate.columns[:1] or tuple(worker.schema.names[:1])
    wanted = PlacedColumns(columns=columns, where=predicate.text)
    found = np.zeros(len(files), np.int64)
    for batch in worker.read_placed(files, wanted, limits=TaskLimits()):
        found += np.bincount(batch.column(FILE_NUMBER).to_numpy(), minlength=len(files))
    visible = np.array([worker.count_rows([file]) for file in files], np.int64)
    return pa.array(np.select([found == 0, found == visible], [NONE, ALL], default=UNKNOWN))
