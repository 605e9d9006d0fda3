"""For tests of code that uses lakehand: tables in memory, stores that fail, a clock that stands.

`MemoryStore` keeps a table in the memory of the process: nothing is written to disk, and all tasks
run in the process. `FaultStore` is the same store with requests that fail or are slow, as `Fault`
says: which ones, how and how often. `CountingStore` counts requests and bytes. `ManualClock` moves
only when it is told to, so that a test never waits.

>>> import pyarrow as pa
>>> import lakehand
>>> from lakehand.testing import Fault, FaultKind, FaultStore, MemoryStore
>>> store = MemoryStore("orders")
>>> schema = pa.schema([("id", pa.int64())])
>>> table = lakehand.create_table(store, schema)
>>> table.append(pa.table({"id": [1, 2]})).rows_written
2

A store that takes no data files any more: the append fails, and the table is as it was.

>>> fault = Fault(kind=FaultKind.FAIL_BEFORE, key="*.parquet", times=None)
>>> broken = lakehand.open_table(FaultStore(store, [fault]), max_retries=0)
>>> try:
...     broken.append(pa.table({"id": [3]}))
... except lakehand.StorageError as error:
...     print(error.code)
STORE_UNREACHABLE
>>> fault.hits > 0, table.to_arrow()["id"].to_pylist()
(True, [1, 2])
>>> store.clear()
"""

from __future__ import annotations

from lakehand.observe.clock import ManualClock
from lakehand.storage.fault_injection import CountingStore, Fault, FaultKind, FaultStore
from lakehand.storage.memory import MemoryStore

__all__ = [
    "CountingStore",
    "Fault",
    "FaultKind",
    "FaultStore",
    "ManualClock",
    "MemoryStore",
]
