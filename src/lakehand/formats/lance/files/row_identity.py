"""What rows of tables with stable row ids keep when they move: ids, and the versions they are of.

Lance keeps all three with the fragment, row by row in its order. Ids are encoded by the library;
versions, for which it has no function, here: as runs of rows of one version, a protobuf message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakehand.formats.lance.connect import load_lance

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["CREATED", "IDENTITY", "ROW_ID", "UPDATED", "described_identity", "version_runs"]

ROW_ID, CREATED, UPDATED = "_rowid", "_row_created_at_version", "_row_last_updated_at_version"
#: Columns beside those of the table, as Lance hands them out.
IDENTITY = (ROW_ID, CREATED, UPDATED)
_VERSION_COLUMNS = {
    CREATED: "created_at_version_meta",
    UPDATED: "last_updated_at_version_meta",
}
_BYTES, _NUMBER = 2, 0
_SEVEN_BITS, _MORE = 0x7F, 0x80


def described_identity(rows: Sequence[pa.RecordBatch]) -> dict[str, Any]:
    """Return what is added to the description of a fragment; `rows` have IDENTITY, in order."""
    moved = pa.Table.from_batches(rows)
    ids = load_lance().fragment.RowIdSequence(moved[ROW_ID]).to_inline_metadata()
    versions = {
        name: {"inline": list(version_runs(moved[column].to_numpy()))}
        for column, name in _VERSION_COLUMNS.items()
    }
    return {"row_id_meta": ids.asdict(), **versions}


def version_runs(versions: npt.NDArray[Any]) -> bytes:
    """Return the versions of rows as Lance stores them: a span of rows, then their version.

    >>> list(version_runs(np.array([1] * 64)))
    [10, 8, 10, 4, 10, 2, 16, 64, 16, 1]
    """
    starts = np.flatnonzero(np.append(True, versions[1:] != versions[:-1]))
    ends = np.append(starts[1:], len(versions))
    runs = zip(starts.tolist(), ends.tolist(), versions[starts].tolist(), strict=True)
    return b"".join(_run(*run) for run in runs)


def _run(start: int, end: int, version: int) -> bytes:
    # A number that is zero is left out, as in every message of this kind.
    span = (_field(1, start) if start else b"") + _field(2, end)
    return _message(1, _message(1, _message(1, span)) + _field(2, version))


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3 | _NUMBER) + _varint(value)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > _SEVEN_BITS:
        found.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    return bytes([*found, value])
