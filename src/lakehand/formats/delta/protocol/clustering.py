"""What a table says about the order of its rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import CorruptLogError, ValidationError
from lakehand.formats.delta.protocol.actions import load_json
from lakehand.formats.delta.protocol.schema import MappingMode, StructType, leaves
from lakehand.model.order import Order, parse_order
from lakehand.model.snapshot import quoted_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


CLUSTERING_DOMAIN = "delta.clustering"
_MOST_SHOWN = 200
#: Tag of files that were clustered together.
CUBE_ID = "ZCUBE_ID"
_CUBE_COLUMNS = "ZCUBE_ZORDER_BY"
_CUBE_PROVIDER = "liquid"
#: Our own tags: the order that rows are in, and the files that were put into it together.
_ORDER, _UNIT = "LAKEHAND_ORDER", "LAKEHAND_UNIT"
_KEPT_TAGS = ("ZCUBE_", "LAKEHAND_")
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def is_order_tag(name: str) -> bool:
    """Say whether a tag of a file names the order that lakehand gave its rows."""
    return name == _ORDER


def clustering_columns(domains: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the physical paths of the columns that the table is clustered by.

    Engines write each as a list of names; the specification shows names alone, so both are read.
    """
    text = domains.get(CLUSTERING_DOMAIN, "{}")
    try:
        return tuple(map(_column_path, load_json(text).get("clusteringColumns") or []))
    except (ValueError, TypeError, AttributeError) as error:
        message = f"the table's clustering columns cannot be read from {text[:_MOST_SHOWN]!r}"
        raise CorruptLogError(message, hint="declare the columns again by ALTER TABLE") from error


def _column_path(column: Any) -> tuple[str, ...]:
    names = (column,) if isinstance(column, str) else tuple(column)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError("a clustering column has no name")
    return names


def clustering_names(
    domains: Mapping[str, str], schema: StructType, *, mode: MappingMode
) -> tuple[str, ...]:
    """Return the same columns under their logical names; those that are gone are left out."""
    logical = {leaf.physical_path: leaf.path for leaf in leaves(schema, mode=mode)}
    found = (logical.get(path) for path in clustering_columns(domains))
    return tuple(quoted_column(path) for path in found if path is not None)


def order_mark(
    order: Order,
    unit: str,
    schema: StructType,
    *,
    mode: MappingMode,
    declared: Sequence[tuple[str, ...]],
) -> dict[str, Any]:
    """Return what the entry of a file says of the order of its rows.

    Where it is the order that the table declares, other engines are told in their own words.
    """
    physical = _physical_paths(order, schema, mode)
    tags = {_ORDER: _order_text(order, physical), _UNIT: unit}
    if order.curve != "hilbert" or tuple(declared) != physical:
        return {"tags": tags}
    cube = {CUBE_ID: unit, _CUBE_COLUMNS: _cube_columns(order)}
    return {"clusteringProvider": _CUBE_PROVIDER, "tags": tags | cube}


def order_marks(
    tags: pa.MapArray, order: Order, schema: StructType, *, mode: MappingMode
) -> pa.Table:
    """Return the `unit` of each file, null where it has none, and whether its order `is_asked`.

    Files that another engine clustered along its curve count like our own.
    """
    unit, text, cube, columns = (_lookup(tags, name) for name in _READ_TAGS)
    asked = pc.equal(text, _order_text(order, _physical_paths(order, schema, mode)))
    if order.curve == "hilbert":
        asked = pc.coalesce(asked, pc.equal(columns, _cube_columns(order)))
    return pa.table(
        {"unit": pc.coalesce(unit, cube), "is_asked": pc.fill_null(asked, False)}  # noqa: FBT003
    )


_READ_TAGS = (_UNIT, _ORDER, CUBE_ID, _CUBE_COLUMNS)


def _lookup(tags: pa.MapArray, name: str) -> pa.Array:
    return pc.map_lookup(tags, query_key=name, occurrence="first")


def _physical_paths(
    order: Order, schema: StructType, mode: MappingMode
) -> tuple[tuple[str, ...], ...]:
    physical = {leaf.path: leaf.physical_path for leaf in leaves(schema, mode=mode)}
    return tuple(physical[term.path] for term in order.terms)


def _order_text(order: Order, physical: Sequence[tuple[str, ...]]) -> str:
    """Spell an order by physical names, which no renaming changes."""
    return _renamed(order, physical).text


def _renamed(order: Order, paths: Sequence[tuple[str, ...]]) -> Order:
    terms = zip(order.terms, paths, strict=True)
    return replace(order, terms=tuple(replace(term, path=path) for term, path in terms))


def stored_orders(tags: pa.MapArray, schema: StructType, *, mode: MappingMode) -> pa.Array:
    """Return by logical names the order that lakehand put each file into; null: in none."""
    encoded = _lookup(tags, _ORDER).dictionary_encode()
    logical = {leaf.physical_path: leaf.path for leaf in leaves(schema, mode=mode)}
    texts = [_logical_text(text, logical) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _logical_text(text: str, logical: Mapping[tuple[str, ...], tuple[str, ...]]) -> str | None:
    try:
        order = parse_order(text)
    except ValidationError:
        # Another version of lakehand may spell it in another way.
        return None
    paths = [logical.get(term.path) for term in order.terms]
    known = [path for path in paths if path is not None]
    return _renamed(order, known).text if len(known) == len(paths) else None


def _cube_columns(order: Order) -> str:
    """Spell the columns as delta-spark does: in backticks unless a name is a plain word."""
    names = [".".join(map(_quoted_if_needed, term.path)) for term in order.terms]
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False)


def _quoted_if_needed(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def shared_cube(adds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what says that a file is part of the cube of all `adds`; empty if they share none.

    Rows of different cubes, or of none, are in no order together: a file of them says nothing.
    """
    cubes = [_cube(add) for add in adds]
    first = cubes[0] if cubes else {}
    return first if first and all(cube == first for cube in cubes) else {}


def _cube(add: Mapping[str, Any]) -> dict[str, Any]:
    provider, tags = add.get("clusteringProvider"), add.get("tags") or {}
    if not provider or CUBE_ID not in tags:
        return {}
    kept = {name: text for name, text in tags.items() if name.startswith(_KEPT_TAGS)}
    return {"clusteringProvider": provider, "tags": kept}
