"""Which files describe their columns by the same bytes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakehand.parquet.footer import FileField, LocalTails, fetch_footer, parse_footer
from lakehand.parquet.thrift import encode
from lakehand.storage.local_files import translated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["by_schema"]


def by_schema(paths: Sequence[Path]) -> list[list[int]]:
    """Sort local files by what their footers say of columns; return positions of those that agree.

    CorruptFileError if one is no Parquet file, ObjectNotFoundError if it is gone.
    """
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    schema = None
    for position, path in enumerate(paths):
        footer = _footer(path)
        # Columns come first in a footer, so most need not be taken apart.
        if schema is None or not footer.startswith(schema):
            schema = _schema(footer, path)
        found[schema].append(position)
    return list(found.values())


def _footer(path: Path) -> bytes:
    with translated("get", str(path)), path.open("rb", buffering=0) as file:
        return fetch_footer(LocalTails(file), str(path))[0]


def _schema(footer: bytes, path: Path) -> bytes:
    meta = parse_footer(footer, path=str(path), file_bytes=0).meta
    known = (FileField.VERSION, FileField.SCHEMA)
    # The last byte ends the struct, which goes on in the footer.
    return encode({key: meta[key] for key in known if key in meta})[:-1]
