"""Statistics of a file of which rows are deleted: bounds hold, but need no longer be reached."""

from __future__ import annotations

import json
from typing import Any

from lakehand.formats.delta.files.statistics_tree import Tree, string_text, tree_text
from lakehand.formats.delta.protocol.members import load_json

__all__ = ["loosen_statistics"]

_NULLS = "nullCount"


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def loosen_statistics(text: str | None, *, rows: int, visible: int) -> str:
    """Return `add.stats` for the same file with fewer visible rows than the `visible` before.

    A reader may trust a null count of loose statistics where it is none or all of the file's
    `rows`: so a column that had nothing but nulls among visible rows has them in all.

    >>> loosen_statistics('{"numRecords":3,"maxValues":{"a":1.50}}', rows=3, visible=3)
    '{"numRecords":3,"maxValues":{"a":1.50},"tightBounds":false}'
    """
    known = _parse(text)
    was_tight = known.get("tightBounds", True) is not False
    if was_tight and isinstance(known.get(_NULLS), dict):
        known[_NULLS] = _all_null_as(known[_NULLS], visible=visible, rows=rows)
    return tree_text(_texts({**known, "numRecords": rows, "tightBounds": False}))


def _parse(text: str | None) -> dict[str, Any]:
    try:
        parsed = load_json(text, parse_float=_Number) if text else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _all_null_as(counts: dict[str, Any], *, visible: int, rows: int) -> dict[str, Any]:
    return {
        name: _all_null_as(count, visible=visible, rows=rows)
        if isinstance(count, dict)
        else (rows if count == visible and visible else count)
        for name, count in counts.items()
    }


def _texts(value: Any) -> Tree | str:
    if isinstance(value, dict):
        return {name: _texts(item) for name, item in value.items()}
    if isinstance(value, _Number):
        return str(value)
    return string_text(value) if isinstance(value, str) else json.dumps(value)
