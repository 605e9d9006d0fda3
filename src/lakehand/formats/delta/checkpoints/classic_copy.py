"""The copy of a V2 checkpoint under the name that every reader knows.

Readers that have never heard of V2 checkpoints do not see those with a name of their own. As long
as all commits are there, they find the protocol in these and say what they lack. Once commits are
cleaned away, only a checkpoint under the old name can tell them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.checkpoints.files import verify_actions, write_parquet
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum
from lakehand.formats.delta.checkpoints.rows import as_pairs
from lakehand.formats.delta.checkpoints.schema import (
    ADD_FIELDS,
    NON_FILE_KINDS,
    REMOVE_FIELDS,
)
from lakehand.formats.delta.protocol.members import load_json
from lakehand.formats.delta.protocol.names import classic_checkpoint_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.delta.checkpoints.check import CheckpointCheck
    from lakehand.storage import Store

__all__ = ["write_classic_copy"]

_TEXTS = pa.map_(pa.string(), pa.string())
_TOP_KINDS: Mapping[str, pa.DataType] = {
    "add": pa.struct([*ADD_FIELDS.items(), ("stats", pa.string())]),
    "remove": pa.struct(list(REMOVE_FIELDS.items())),
    **NON_FILE_KINDS,
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _TEXTS)]),
    "sidecar": pa.struct(
        [
            ("path", pa.string()),
            ("sizeInBytes", pa.int64()),
            ("modificationTime", pa.int64()),
            ("tags", _TEXTS),
        ]
    ),
}


def write_classic_copy(store: Store, checkpoint: CheckpointCheck) -> str | None:
    """Write the top file of a V2 checkpoint again as `V.checkpoint.parquet`; return its key.

    None where that name is taken, or the checkpoint has it already.
    """
    key = classic_checkpoint_key(checkpoint.version)
    if checkpoint.kind != "v2" or store.exists(key):
        return None
    top = checkpoint.keys[0]
    if top.endswith(".parquet"):
        delete_hadoop_sum(store, key)
        store.put(key, store.get(top))
        return key
    rows = _rows([load_json(line) for line in store.get(top).splitlines() if line.strip()])
    verify_actions(store, write_parquet(store, key, [rows], rows.schema))
    return key


def _rows(lines: list[dict[str, Any]]) -> pa.Table:
    columns = {
        kind: pa.array([as_pairs(line.get(kind)) for line in lines], type_)
        for kind, type_ in _TOP_KINDS.items()
    }
    return pa.table(columns)
