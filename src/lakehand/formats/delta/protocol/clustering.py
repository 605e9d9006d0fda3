"""What a table says about the order of its rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.schema import leaves
from lakehand.model.snapshot import column_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.delta.protocol.schema import MappingMode, StructType

__all__ = ["CLUSTERING_DOMAIN", "clustering_columns", "clustering_names"]

CLUSTERING_DOMAIN = "delta.clustering"


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
