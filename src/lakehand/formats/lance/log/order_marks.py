"""Which fragments were put in order together, as lakehand's own records of its commits tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.formats.lance.commits.records import list_records
from lakehand.model.order import order_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.order import Order
    from lakehand.storage import Store

__all__ = ["order_marks", "stored_orders"]


def order_marks(store: Store, files: pa.Table, order: Order) -> pa.Table:
    """Return for each fragment with what it was put in order, and whether in this very one."""
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
    """Return how names of files begin that were put in order together: by the run and the group.

    Behind it are the task, what tells its attempts apart, and two numbers of the file.
    """
    return path.rsplit("-", 4)[0]


def _is_asked(parameters: Mapping[str, Any], order: Order) -> bool:
    return (parameters.get("order"), parameters.get("curve")) == ([*order.texts], order.curve)
