"""What a table says about the order of its rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.protocol.schema import leaves
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import MappingMode, StructType

__all__ = ["CLUSTERING_DOMAIN", "CUBE_ID", "clustering_columns", "clustering_names", "shared_cube"]

CLUSTERING_DOMAIN = "delta.clustering"
#: Tag of the files that were put in order together.
CUBE_ID = "ZCUBE_ID"
_CUBE_PREFIX = "ZCUBE_"


def clustering_columns(domains: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the physical paths of the columns that the table is clustered by.

    Engines write each as a list of names; the specification shows names alone, so both are read.
    """
    configuration = json.loads(domains.get(CLUSTERING_DOMAIN, "{}"))
    columns = configuration.get("clusteringColumns") or []
    return tuple((column,) if isinstance(column, str) else tuple(column) for column in columns)


def clustering_names(
    domains: Mapping[str, str], schema: StructType, *, mode: MappingMode
) -> tuple[str, ...]:
    """Return the same columns under their logical names; those that are gone are left out."""
    logical = {leaf.physical_path: leaf.path for leaf in leaves(schema, mode=mode)}
    found = (logical.get(path) for path in clustering_columns(domains))
    return tuple(column_text(path) for path in found if path is not None)


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
    kept = {name: text for name, text in tags.items() if name.startswith(_CUBE_PREFIX)}
    return {"clusteringProvider": provider, "tags": kept}
