"""Tables that are only a log, in memory: enough for everything a commit looks at."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.delta.commits.commit import commit_change
from lakehand.formats.delta.commits.create import create_table
from lakehand.formats.delta.commits.head import Head
from lakehand.formats.delta.log.listing import list_commits, read_commit
from lakehand.formats.delta.protocol.names import decode_path
from lakehand.model.work import DataFile
from lakehand.observe.clock import ManualClock
from lakehand.storage import MemoryStore

if TYPE_CHECKING:
    from lakehand.formats.delta.protocol.actions import Commit
    from lakehand.model.work import Change, Receipt
    from lakehand.storage import Store

SCHEMA = pa.schema([("id", pa.int64())])

_names = itertools.count()


def empty_store() -> MemoryStore:
    return MemoryStore(f"log-{next(_names)}")


def new_table(**properties: str) -> MemoryStore:
    """Return a store with an empty table whose properties are named like delta_appendOnly."""
    store = empty_store()
    named = {name.replace("_", "."): value for name, value in properties.items()}
    create_table(store, SCHEMA, properties=named, clock=ManualClock())
    return store


def commits(store: Store) -> list[Commit]:
    return [read_commit(store, version) for version in list_commits(store, -1)]


def head_of(store: Store, *, version: int | None = None) -> Head:
    first, *rest = commits(store)
    assert first.protocol
    assert first.metadata
    start = Head(table=store.url, version=-1, protocol=first.protocol, metadata=first.metadata)
    chosen = (c for c in (first, *rest) if version is None or c.version <= version)
    return reduce(Head.after, chosen, start)


def live_files(store: Store) -> dict[str, DataFile]:
    """Return the live files by path, as a planner would hand them on."""
    live: dict[str, DataFile] = {}
    for commit in commits(store):
        for remove in commit.removes:
            live.pop(decode_path(remove["path"]), None)
        for add in commit.adds:
            path = decode_path(add["path"])
            live[path] = DataFile(path=path, bytes=add["size"], rows=None, native={"add": add})
    return live


def apply(
    store: Store,
    change: Change,
    *,
    token: str = "token",
    through: Store | None = None,
    **options: Any,
) -> Receipt:
    """Commit a change that was made from its base version, on a clock that never waits.

    `through` is the store that the commit itself sees, for example one with faults.
    """
    options = {"clock": ManualClock(), "chance": lambda: 0.5, **options}
    base = head_of(store, version=change.base_version)
    return commit_change(through or store, change, token=token, head=base, **options)
