"""What happened to a dataset: its versions, and what lies between two of them."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from lakehand.formats.lance.commits.properties import own_record, properties_of
from lakehand.formats.lance.commits.records import read_record
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.files.fragments import fragment_keys
from lakehand.formats.lance.log.manifests import listed_versions
from lakehand.formats.lance.log.snapshot import load_snapshot, utc
from lakehand.model.history import Difference, HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakehand.storage import Store

__all__ = ["diff", "history", "iter_history", "rows_changed_since"]

#: What the library makes of operations that it does not show to Python.
_NAMELESS = "BaseOperation"
#: Operations after which all rows are there that were there before.
_HARMLESS = frozenset({"Append", "Rewrite", "CreateIndex", "append", "compact", "cluster"})
_VERSIONS_LOOKED_AT = 64


def history(store: Store, *, limit: int | None = None) -> list[HistoryEntry]:
    """Return the versions that are still there, newest first."""
    return list(islice(iter_history(store), limit))


def iter_history(store: Store) -> Iterator[HistoryEntry]:
    """Yield the versions that are still there, newest first, reading each when it is asked for."""
    newest = open_dataset(store)
    return (_entry(store, newest, version) for version in listed_versions(store))


def rows_changed_since(store: Store, moment: datetime) -> bool:
    """Say whether one of the newest versions, since `moment`, took rows away."""
    newest = open_dataset(store)
    recent = islice(listed_versions(store), _VERSIONS_LOOKED_AT)
    entries = (_entry(store, newest, version) for version in recent)
    return any(
        entry.operation not in _HARMLESS
        for entry in takewhile(lambda one: one.at >= moment, entries)
    )


def _entry(store: Store, newest: Any, version: int) -> HistoryEntry:
    dataset = newest.checkout_version(version)
    summary = dataset.get_version()
    transaction = _transaction(dataset, version)
    properties = transaction.transaction_properties if transaction else None
    record = read_record(store, version) or own_record(properties_of(properties))
    operation, parameters = _operation(transaction)
    return HistoryEntry(
        version=version,
        at=utc(summary["timestamp"]),
        operation=record.operation if record else operation,
        parameters=record.parameters if record else parameters,
        metrics=summary["metadata"],
        summary=f"{summary['metadata']['total_rows']} rows in"
        f" {summary['metadata']['total_fragments']} fragments",
        engine="lakehand" if record else None,
        token=record.token if record else None,
        proof=record.proof if record else None,
    )


def _transaction(dataset: Any, version: int) -> Any:
    """Return what made a version, as far as the library can read it back; else None."""
    try:
        return dataset.read_transaction(version)
    except (OSError, TypeError, ValueError):
        # The library cannot build every operation that it writes, rewritten indices among them.
        return None


def _operation(transaction: Any) -> tuple[str | None, dict[str, Any]]:
    name = type(transaction.operation).__name__ if transaction else _NAMELESS
    if name == _NAMELESS:
        return None, {}
    predicate = getattr(transaction.operation, "predicate", None)
    return name, {"predicate": predicate} if predicate else {}


def diff(store: Store, from_version: int, to_version: int) -> Difference:
    """Return which fragments `to_version` has and `from_version` has not, and the reverse."""
    old = load_snapshot(store, version=from_version)
    new = load_snapshot(store, version=to_version)
    old_keys, new_keys = fragment_keys(old.files), fragment_keys(new.files)
    return Difference(
        from_version=from_version,
        to_version=to_version,
        added=new.files.filter(~np.isin(new_keys, old_keys)),
        removed=old.files.filter(~np.isin(old_keys, new_keys)),
        schema_changed=old.schema != new.schema,
        properties_changed=dict(old.properties) != dict(new.properties),
    )
