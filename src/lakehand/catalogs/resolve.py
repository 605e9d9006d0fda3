"""From the name of a table to its store: `unity:main.sales.events`, or a path unchanged."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakehand.catalogs.catalog_contract import Access, Catalog, find_maintainable, parse_name
from lakehand.errors import CatalogError, ConfigError
from lakehand.storage import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIXED = re.compile(r"(?P<catalog>unity|glue|hive|lance):(?P<name>(?!//).*)", re.DOTALL)
_BARE = re.compile(r"[^\s./\\:`]+(?:\.[^\s./\\:`]+){1,2}")
_DEFAULT = "LAKEHAND_CATALOG"
#: Variables of which one tells that a catalog is in use, and how many parts its names have.
_IN_USE: Mapping[str, tuple[tuple[str, ...], int]] = {
    "unity": (("UNITY_CATALOG_URI", "DATABRICKS_HOST"), 3),
    "hive": (("HIVE_METASTORE_URI",), 2),
    "glue": (("GLUE_CATALOG_ID",), 2),
}


def _unity() -> Catalog:
    from lakehand.catalogs.unity import open_unity

    return open_unity()


def _glue() -> Catalog:
    from lakehand.catalogs.glue import open_glue

    return open_glue()


def _hive() -> Catalog:
    from lakehand.catalogs.hive import open_hive

    return open_hive()


def _lance() -> Catalog:
    from lakehand.catalogs.lance_namespace import open_lance

    return open_lance()


#: How to connect to each kind of catalog, as the environment says.
CATALOGS: Mapping[str, Callable[[], Catalog]] = {
    "unity": _unity,
    "glue": _glue,
    "hive": _hive,
    "lance": _lance,
}


def open_catalog(name: str) -> Catalog:
    """Connect to `unity`, `glue`, `hive` or `lance` as the environment variables say."""
    if name not in CATALOGS:
        known = ", ".join(CATALOGS)
        message = f"there is no catalog {name!r}"
        raise ConfigError(message, field=_DEFAULT, value=name, hint=f"known are {known}")
    return CATALOGS[name]()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, and how its files are reached, as far as a catalog knows."""

    uri: str | Path
    access: Access

    def open(self, storage_options: Mapping[str, str] | None = None) -> Store:
        """Open the store; `storage_options` win over what the catalog hands out."""
        options = {**self.access.options, **(storage_options or {})}
        return open_store(self.uri, options, credentials=self.access.credentials)


def locate(uri: str | Path, *, is_new: bool = False) -> Place:
    """Return the place of a table that is given by path, URL or name in a catalog.

    What `is_new` is a path unless it names its catalog: lakehand enters nothing into a catalog.
    """
    named = None if isinstance(uri, Path) else split_catalog(uri)
    if named is not None:
        return _entry_of(*named)
    if isinstance(uri, Path) or is_new or (catalog := _default_catalog(uri)) is None:
        return Place(uri, Access())
    try:
        return _entry_of(catalog, uri)
    except CatalogError as error:
        error.hint = f"{error.hint}; for a new path, write ./{uri}"
        raise


def _entry_of(catalog_name: str, name: str) -> Place:
    catalog = open_catalog(catalog_name)
    table = find_maintainable(catalog, parse_name(name, catalog))
    return Place(table.location or "", catalog.access(table))


def open_named_store(
    uri: str | Path | Store, storage_options: Mapping[str, str] | None = None
) -> Store:
    """Open the store of a table that is given by path, URL, store or name in a catalog."""
    return uri if isinstance(uri, Store) else locate(uri).open(storage_options)


def _default_catalog(text: str) -> str | None:
    """Return where a name without a catalog is looked up; None for a path or URL.

    That is the catalog of LAKEHAND_CATALOG, or else the only one in use whose names have as many
    parts. A file or directory of this name wins.
    """
    if not _BARE.fullmatch(text) or Path(text).exists():
        return None
    if default := os.environ.get(_DEFAULT):
        return default
    parts = text.count(".") + 1
    fitting = [
        name
        for name, (variables, levels) in _IN_USE.items()
        if levels == parts and any(map(os.environ.get, variables))
    ]
    return fitting[0] if len(fitting) == 1 else None


def split_catalog(text: str) -> tuple[str, str] | None:
    """Return the catalog and what follows it in `unity:main.sales.events`; None for others."""
    match = _PREFIXED.fullmatch(text)
    return (match["catalog"], match["name"]) if match else None


def catalog_hint(uri: str | Path) -> str | None:
    """Return what to do about a path that looks like the name of a table, and is none."""
    if isinstance(uri, Path) or not _BARE.fullmatch(uri) or Path(uri).exists():
        return None
    kinds = ("unity",) if uri.count(".") > 1 else ("hive", "glue")
    names = " or ".join(f"{kind}:{uri}" for kind in kinds)
    return f"if it is a table of a catalog, write {names}, or set {_DEFAULT}"
