"""Regular expressions of Java, spelled for RE2 so that both find the same texts.

Only what finds a match or none is asked for, never where it is, so which of several matches comes
first does not matter. Whatever is not known to mean the same is Unsupported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakehand.expressions.typed import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["spelled_for_re2"]

#: What ends a line in Java. A dot does not match it, and "$" may stand before the last one.
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_SETS: Mapping[str, str] = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0B\f\r"}
_PART = re.compile(
    r"""
    (?P<set>\\[dws])
    | (?P<escaped>\\[^0-9A-Za-z])
    | (?P<class>\[\^?(?:[^\[\]\\&^]|\\[dws]|\\[^0-9A-Za-z])+\])
    | (?P<any>\.)
    | (?P<end>\$(?=$|[|)]))
    | (?P<group>\((?:\?:)?(?!\?))
    | (?P<same>[\^|)] | [*+?](?![+]) | \{\d+(?:,\d*)?\}(?![+]))
    | (?P<plain>[^\\\[\]{}().*+?$^|])
    """,
    re.VERBOSE | re.DOTALL,
)


def spelled_for_re2(pattern: str) -> str:
    """Return a pattern that RE2 finds where Java finds `pattern`."""
    parts, position = [], 0
    while position < len(pattern):
        found = _PART.match(pattern, position)
        if found is None:
            raise Unsupported(f"the pattern {pattern!r}: what comes at {pattern[position:]!r}")
        parts.append(_spell(str(found.lastgroup), found[0]))
        position = found.end()
    return "".join(parts)


def _spell(kind: str, text: str) -> str:
    match kind:
        case "set":
            return f"[{_SETS[text[1]]}]"
        case "class":
            return re.sub(r"\\([dws])", lambda found: _SETS[found[1]], text)
        case "any":
            return f"[^{_LINE_ENDS}]"
        case "end":
            return rf"(?:\r\n|[{_LINE_ENDS}])?$"
    return text
