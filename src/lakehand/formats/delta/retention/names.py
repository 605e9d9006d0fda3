"""Which names in a table's root can be files of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DataNames"]

#: Change data is the one hidden directory that vacuum looks into.
_CHANGE_DATA = "_change_data"
_DATA_ENDING = ".parquet"
_VECTOR_ENDING = ".bin"
_VECTOR_NAME = r"(^|/)deletion_vector_[^/]*\.bin$"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataNames:
    """Tells data files, deletion vectors and change data by their keys.

    A name that starts with `_` or `.` is hidden, unless it is that of a partition's directory.
    Everything hidden belongs to somebody else, or to the log, and is left alone.
    """

    #: As directories spell them: by logical and by physical name.
    partition_columns: tuple[str, ...] = ()

    @property
    def first_to_go(self) -> str | None:
        """None: what names files is the log, which is not deleted with them."""
        return None

    def is_data(self, keys: pa.Array) -> pa.BooleanArray:
        """Say of each key whether it can be a file of rows, or belongs to one."""
        is_change = pc.starts_with(keys, pattern=f"{_CHANGE_DATA}/")
        below = pc.if_else(is_change, pc.utf8_slice_codeunits(keys, len(_CHANGE_DATA) + 1), keys)
        named = pc.or_(pc.ends_with(keys, pattern=_DATA_ENDING), _is_vector(keys))
        return pc.and_(named, pc.invert(self._is_hidden(below)))

    def may_hold_data(self, directory: str) -> bool:
        """Say whether a directory is worth a look."""
        if directory == _CHANGE_DATA:
            return True
        name = directory.rpartition("/")[2]
        return not name.startswith(("_", ".")) or name.startswith(self._partition_starts())

    def _is_hidden(self, keys: pa.Array) -> pa.BooleanArray:
        if not any(start[0] in "_." for start in self._partition_starts()):
            return _has_hidden_part(keys)
        starts = "|".join(re.escape(start) for start in self._partition_starts())
        plain = pc.replace_substring_regex(keys, pattern=f"(^|/)({starts})", replacement=r"\1p=")
        return _has_hidden_part(plain)

    def _partition_starts(self) -> tuple[str, ...]:
        return tuple(f"{column}=" for column in self.partition_columns)


def _has_hidden_part(keys: pa.Array) -> pa.BooleanArray:
    """Say of each key whether a part of it begins with `_` or `.`, without a regular expression.

    A million keys pass here in every vacuum.
    """
    found = pc.or_(pc.starts_with(keys, pattern="_"), pc.starts_with(keys, pattern="."))
    for start in ("/_", "/."):
        found = pc.or_(found, pc.match_substring(keys, pattern=start))
    return found


def _is_vector(keys: pa.Array) -> pa.BooleanArray:
    may_be = pc.ends_with(keys, pattern=_VECTOR_ENDING)
    if not pc.any(may_be).as_py():
        return may_be
    return pc.match_substring_regex(keys, pattern=_VECTOR_NAME)
