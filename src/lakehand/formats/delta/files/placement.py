"""Where the files of a table lie: the directory that a partition's new files go into."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.intervals import integer_property
from lakehand.formats.delta.protocol.schema import MappingMode, physical_name
from lakehand.storage.keys import is_safe_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.protocol.schema import StructField

__all__ = ["partition_directory"]

_NULL = "__HIVE_DEFAULT_PARTITION__"
#: What file systems take as one name, and what leaves room for a file's name where object stores
#: take 1,024 bytes.
_MOST_NAME_BYTES, _MOST_BYTES = 255, 700
# What Spark escapes in names and values of partition directories.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


def partition_directory(
    columns: Sequence[StructField],
    values: Mapping[str, str | None],
    *,
    mode: MappingMode,
    configuration: Mapping[str, str],
) -> str:
    """Return the directory, relative to the table's root; empty for the root itself.

    `values` are the raw partition values by physical name. Readers take nothing from the
    directory: with mapped columns, names would lie there, so files go to the root. So do those of
    values that are too long for a name, or that no path may hold.
    """
    if configuration.get("delta.randomizeFilePrefixes", "false").lower() == "true":
        length = integer_property(configuration, "delta.randomPrefixLength", 2)
        return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:length]
    if mode is not MappingMode.NONE:
        return ""
    parts = [
        f"{_escape(column.name)}={_escape(values.get(physical_name(column, mode=mode)) or _NULL)}"
        for column in columns
    ]
    directory = "/".join(parts)
    is_short = all(len(part.encode()) <= _MOST_NAME_BYTES for part in parts)
    is_short = is_short and len(directory.encode()) <= _MOST_BYTES
    return directory if is_short and is_safe_key(directory) else ""


def _escape(text: str) -> str:
    """Escape as Hive does.

    >>> _escape("2026-01-01 10:00:00")
    '2026-01-01 10%3A00%3A00'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
