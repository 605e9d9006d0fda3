"""What every catalog gives: tables by name, and all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakehand.errors import CatalogError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.storage.aws_credentials import RenewedCredentials

#: Formats that lakehand maintains.
FORMATS = frozenset({"delta", "lance"})
_PART = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^`.\s/\\:]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogTable:
    """An entry of a catalog: a table, or something else that has a name there."""

    #: Names from the top: catalog, schema and table, or database and table.
    names: tuple[str, ...]
    #: delta, lance, or a format that lakehand does not maintain; lower case.
    format: str
    #: Whether it is a view, which has no files.
    is_view: bool
    #: URL of its root; None for views.
    location: str | None
    #: Identifier in the catalog, where it gives credentials by that.
    table_id: str | None = None
    #: Property of the catalog's entry that are of use: owner, comment, ...
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return ".".join(self.names)

    @property
    def is_maintainable(self) -> bool:
        return not self.is_view and self.format in FORMATS and bool(self.location)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """How the files of a table are reached: options of the store, and keys that are renewed."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: RenewedCredentials | None = None


class Catalog(Protocol):
    """A connection to a catalog; requests are made when it is asked."""

    #: How it is called in `NAME:schema.table`.
    name: str

    @property
    def levels(self) -> int | None:
        """Parts of a table's name; None: any number."""
        ...

    def find(self, names: tuple[str, ...]) -> CatalogTable | None:
        """Return an entry; None if there is none of this name."""
        ...

    def tables(self) -> Iterator[CatalogTable]:
        """Return all entries that can be seen."""
        ...

    def access(self, table: CatalogTable) -> Access:
        """Return what the catalog hands out to reach the files of a table."""
        ...


def parse_name(text: str, catalog: Catalog) -> tuple[str, ...]:
    """Split `main.sales.events`, in which a part may stand in backticks."""
    parts, position = [], 0
    while match := _PART.match(text, position):
        quoted = match["quoted"]
        parts.append(quoted.replace("``", "`") if quoted else match["plain"])
        position = match.end()
        if position == len(text) or text[position] != ".":
            break
        position += 1
    levels = catalog.levels or max(len(parts), 1)
    if position != len(text) or len(parts) != levels:
        example = ".".join(("main", "sales", "events")[-levels:])
        raise ValidationError(
            f"{text!r} is not the name of a table in a {catalog.name} catalog",
            field="uri",
            value=text,
            hint=f"write it as {catalog.name}:{example}; put parts with other characters in"
            " backticks",
        )
    return tuple(parts)


def find_maintainable(catalog: Catalog, names: tuple[str, ...]) -> CatalogTable:
    """Return the table of a name; CatalogError if it is not one that lakehand maintains."""
    found = catalog.find(names)
    name = f"{catalog.name}:{'.'.join(names)}"
    if found is None:
        raise CatalogError(
            f"there is no table {name}",
            table=name,
            hint=f"check the spelling; `lakehand tables discover {catalog.name}:` lists what you"
            " may see",
        )
    if found.is_view:
        hint = "name the tables that it reads"
        raise CatalogError(f"{name} is a view, which has no files", table=name, hint=hint)
    if found.format not in FORMATS:
        raise CatalogError(
            f"{name} is a table of the format {found.format or 'unknown'}",
            table=name,
            hint="lakehand maintains Delta and Lance tables",
        )
    if not found.location:
        raise CatalogError(f"the catalog names no location of {name}", table=name)
    return found
