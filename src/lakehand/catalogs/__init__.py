"""Catalogs: a table by its name, where it lies and with which credentials."""

from __future__ import annotations

from lakehand.catalogs.catalog_contract import Catalog, CatalogTable
from lakehand.catalogs.resolve import (
    CATALOGS,
    catalog_hint,
    locate,
    open_catalog,
    open_named_store,
    split_catalog,
)

__all__ = [
    "CATALOGS",
    "Catalog",
    "CatalogTable",
    "catalog_hint",
    "locate",
    "open_catalog",
    "open_named_store",
    "split_catalog",
]
