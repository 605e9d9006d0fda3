"""An object store interface over obstore, the local disk and memory."""

from __future__ import annotations

from lakehand.storage.fault_injection import CountingStore, Fault, FaultKind, FaultStore
from lakehand.storage.location import Location, parse_location, path_to_url
from lakehand.storage.memory import MemoryStore
from lakehand.storage.objects import DeleteFailure, ObjectInfo, ObjectReader, ObjectWriter
from lakehand.storage.retry import NO_RETRY, RetryMetrics, RetryPolicy, with_retry, with_retry_async
from lakehand.storage.store import Store, open_store

__all__ = [
    "NO_RETRY",
    "CountingStore",
    "DeleteFailure",
    "Fault",
    "FaultKind",
    "FaultStore",
    "Location",
    "MemoryStore",
    "ObjectInfo",
    "ObjectReader",
    "ObjectWriter",
    "RetryMetrics",
    "RetryPolicy",
    "Store",
    "open_store",
    "parse_location",
    "path_to_url",
    "with_retry",
    "with_retry_async",
]
