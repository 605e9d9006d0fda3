"""The versions of a dataset, what changed between two, and what lakehand proved."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import VersionNotFoundError
from lakehand.formats.lance.commit_records import (
    list_records,
    own_record,
    properties_of,
    read_record,
)
from lakehand.formats.lance.connect import is_lance_failure, listed_versions, open_dataset, reading
from lakehand.formats.lance.fragments import data_files, fragment_keys
from lakehand.formats.lance.snapshot import load_snapshot, utc
from lakehand.model.order import Order, order_of
from lakehand.model.reports import Difference, HistoryEntry
from lakehand.model.work import DataFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from lakehand.formats.lance.commit_records import Record
    from lakehand.storage import Store

#: What the library makes of operations that it does not show to Python.
_NAMELESS = "BaseOperation"
#: Operations that delete no row.
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
    with reading(store, version):
        dataset = newest.checkout_version(version)
        summary = dataset.get_version()
        at = utc(summary["timestamp"])
    transaction = _transaction(dataset, version)
    properties = transaction.transaction_properties if transaction else None
    record = read_record(store, version) or own_record(properties_of(properties))
    operation, parameters = _operation(transaction)
    return HistoryEntry(
        version=version,
        at=at,
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
    except BaseException as error:
        # The library cannot build every operation that it writes, rewritten indices among them.
        if isinstance(error, TypeError) or is_lance_failure(error):
            return None
        raise


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


def proved_files(
    store: Store, version: int, record: Record | None
) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """Return the fragments that a version removed and those that replaced them.

    VersionNotFoundError if the version is gone. If only the one before it is, the fragments that
    were removed are unknown: an unreadable file stands for them.
    """
    now = load_snapshot(store, version=version)
    if record is None or record.proof is None:
        return (), ()
    # Other writers may have come between the base and this version, but not right before it.
    before = version - 1
    try:
        change = diff(store, before, version)
    except VersionNotFoundError:
        is_ours = pc.is_in(now.files["path"], value_set=pa.array(record.outputs, pa.string()))
        return (_gone(before),), _at(now.files.filter(is_ours), version)
    return _at(change.removed, before), _at(change.added, version)


def _gone(version: int) -> DataFile:
    return DataFile(path=f"version {version}", bytes=0, rows=None, native={"version": version})


def _at(files: pa.Table, version: int) -> tuple[DataFile, ...]:
    """Add the version to each file: its deleted rows differ between versions."""
    return tuple(
        replace(file, native={**file.native, "version": version}) for file in data_files(files)
    )


def order_marks(store: Store, files: pa.Table, order: Order) -> pa.Table:
    """Return for each fragment the unit that it was clustered in, and whether by this order."""
    units: dict[str, str] = {}
    asked: set[str] = set()
    for record in list_records(store):
        if record.parameters.get("order"):
            units |= {path: _unit(path) for path in record.outputs}
            if _is_asked(record.parameters, order):
                asked |= set(record.outputs)
    paths = files["path"].to_pylist()
    return pa.table(
        {
            "unit": pa.array([units.get(path) for path in paths], pa.string()),
            "is_asked": pa.array([path in asked for path in paths], pa.bool_()),
        }
    )


def stored_orders(store: Store, files: pa.Table) -> pa.Array:
    """Return the order that each fragment was put into; null: in none."""
    orders: dict[str, str] = {}
    for record in list_records(store):
        if terms := record.parameters.get("order"):
            text = order_of(terms, record.parameters["curve"]).text
            orders |= dict.fromkeys(record.outputs, text)
    return pa.array([orders.get(path) for path in files["path"].to_pylist()], pa.string())


def _unit(path: str) -> str:
    """Return how names of files begin that were clustered together: by the run and the group.

    Behind it are the task, what tells its attempts apart, and two numbers of the file.
    """
    return path.rsplit("-", 4)[0]


def _is_asked(parameters: Mapping[str, Any], order: Order) -> bool:
    return (parameters.get("order"), parameters.get("curve")) == ([*order.texts], order.curve)
