"""Which formats there are, and which one a table has. Formats are imported when first needed."""

from __future__ import annotations

import difflib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakehand.errors import NotATableError, ValidationError
from lakehand.formats.optional import SupportsCreation, SupportsPolling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakehand.formats.base import Format
    from lakehand.storage import ObjectInfo, Store


def _load_delta() -> Format:
    from lakehand.formats.delta.table import DeltaFormat

    return DeltaFormat()


def _load_lance() -> Format:
    from lakehand.formats.lance.table import LanceFormat

    return LanceFormat()


#: Formats by name, in the order in which they are looked for.
FORMATS: dict[str, Callable[[], Format]] = {"delta": _load_delta, "lance": _load_lance}

#: Of a directory in which a name is looked for that was misspelt, and the difference in length.
_MOST_NAMES, _MOST_DIFFERENCE = 1_000, 3

#: Directories by which a table of a format that lakehand does not open is known.
_FOREIGN_MARKERS: Mapping[str, str] = {
    "metadata": "Iceberg",
    ".hoodie": "Hudi",
}


def register_format(name: str, load: Callable[[], Format]) -> None:
    """Add a format, which is looked for after those that are known; ValidationError if one is.

    `load` imports and returns the format; it is called for every table that no other format knows.
    """
    if name in FORMATS:
        message = f"there is a format named {name!r} already"
        raise ValidationError(message, field="format", value=name)
    FORMATS[name] = load


def load_creating_format(name: str) -> SupportsCreation:
    """Return the format of this name; ValidationError if lakehand creates no tables of it."""
    found = load_format(name)
    if not isinstance(found, SupportsCreation):
        message = f"lakehand opens tables of the format {name!r}, but does not create them"
        raise ValidationError(message, field="format", value=name)
    return found


def load_format(name: str) -> Format:
    """Return the format of this name."""
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValidationError(f"no format named {name!r}", field="format", hint=f"known: {known}")
    return FORMATS[name]()


def detect_format(store: Store) -> Format:
    """Return the format of the table at the root of `store`; NotATableError if there is none."""
    for load in FORMATS.values():
        table_format = load()
        if table_format.detect(store):
            return table_format
    raise NotATableError(
        f"there is no table at {store.url}", hint=_found_instead(store), table=store.url
    )


def format_of_root(directories: Iterable[str]) -> str | None:
    """Return the format of a table whose root has these directories; None: it is no table's root.

    >>> format_of_root(["data/", "part=1/"]) is None
    True
    """
    names = {directory.rstrip("/").rsplit("/", 1)[-1] for directory in directories}
    return next((name for name in FORMATS if load_format(name).root_directory in names), None)


def commit_of_key(key: str) -> tuple[str, str, int] | None:
    """Return root, format and version of the table that an object of this key commits to.

    >>> commit_of_key("sales/orders/part-0.parquet") is None
    True
    """
    directory, _, _ = key.rpartition("/")
    root, _, name = directory.rpartition("/")
    for format_name in FORMATS:
        table_format = load_format(format_name)
        if table_format.root_directory != name or not isinstance(table_format, SupportsPolling):
            continue
        version = table_format.version_of_key(key.removeprefix(f"{root}/" if root else ""))
        if version is not None:
            return root, format_name, version
    return None


def _found_instead(store: Store) -> str:
    """Return the hint: what the location holds instead of a table."""
    directories, objects = store.list_directory()
    names = {directory.rstrip("/") for directory in directories}
    for marker, foreign in _FOREIGN_MARKERS.items():
        if marker in names:
            known = ", ".join(FORMATS)
            return f"it looks like a table of {foreign}; lakehand opens: {known}"
    if any(found.key.endswith(".parquet") for found in objects):
        return "it holds Parquet files but no log; name the directory that holds the table's log"
    if names or objects:
        return f"it holds {_examples(names, objects)}; name the root directory of a table"
    if store.url.startswith("file:"):
        near = _named_alike(Path(unquote(urlsplit(store.url).path)))
        return near or "the directory is empty or does not exist; check the path"
    return "no objects are below this URL; check the path, the bucket and the credentials"


def _named_alike(path: Path) -> str | None:
    """Return the hint that a directory in the same place has nearly this name; None: no hint."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]
    except OSError:
        return None
    alike = [name for name in names if abs(len(name) - len(path.name)) <= _MOST_DIFFERENCE]
    for name in difflib.get_close_matches(path.name, alike):
        if name != path.name and os.path.isdir(path.with_name(name)):  # noqa: PTH112  raises nothing
            return f"did you mean {path.with_name(name)}?"
    return None


def _examples(directories: set[str], objects: list[ObjectInfo]) -> str:
    names = sorted(directories) + sorted(found.key for found in objects)
    shown = ", ".join(names[:3])
    return f"{shown} and more" if len(names) > 3 else shown  # noqa: PLR2004  three make the point
