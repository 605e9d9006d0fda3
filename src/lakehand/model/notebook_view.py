"""Reports, plans and tables as HTML, as notebooks show them: the figures first, lists collapsed."""

from __future__ import annotations

from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: Fields that the headline has, or that are for programs.
_HEADLINE = frozenset({"operation", "outcome", "table", "version", "form", "table_id", "format"})
#: Entries of a list that are shown.
_MOST_ENTRIES = 10
_LONGEST_TEXT = 200
_CELL = 'style="text-align:left;padding:2px 12px 2px 0"'


class NotebookView:
    """Shows the document of `to_json` in notebooks."""

    __slots__ = ()

    if TYPE_CHECKING:

        def to_json(self) -> dict[str, Any]: ...

    def _repr_html_(self) -> str:
        document = self.to_json()
        words = [document.get("operation") or type(self).__name__, document.get("outcome")]
        return facts_as_html(": ".join(word for word in words if word), document)


def facts_as_html(headline: str, document: Mapping[str, Any]) -> str:
    """Return a headline, and a table of the facts of a document that are set."""
    place = [str(document[name]) for name in ("table", "format") if document.get(name)]
    if document.get("version") is not None:
        place.append(f"version {document['version']}")
    rows = "".join(_row(name, text) for name, text in _facts(document))
    lists = "".join(_list(name, entries) for name, entries in document.items() if _is_list(entries))
    return (
        f'<div class="lakehand"><b>{escape(headline.replace("_", " "))}</b>'
        f'<div style="opacity:.7">{escape(" · ".join(place))}</div>'
        f"<table>{rows}</table>{lists}</div>"
    )


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if name in _HEADLINE or value is None or name.endswith("_after"):
            continue
        if name.endswith("_before") and name.replace("_before", "_after") in document:
            after = document[name.replace("_before", "_after")]
            yield name.removesuffix("_before"), _pair(name, value, after)
        elif isinstance(value, dict) and value.keys() == {"before", "after"}:
            yield name, _pair(name, value["before"], value["after"])
        elif isinstance(value, dict):
            set_members = {key: one for key, one in value.items() if one and _is_plain(one)}
            if set_members:
                members = (f"{key} {_text(key, one)}" for key, one in set_members.items())
                yield name, ", ".join(members).replace("_", " ")
        elif _is_plain(value) and value not in (0, "", False):
            yield name, _text(name, value)


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str)) or hasattr(value, "isoformat")


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value)


def _pair(name: str, before: Any, after: Any) -> str:
    return f"{_text(name, before)} → {_text(name, after)}"


def _text(name: str, value: Any) -> str:
    """Format a value by its unit, which its name says."""
    if value is None:
        return "-"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "bytes" in name and "per_second" not in name:
            return format_bytes(value)
        if name.endswith("_ms"):
            return format_duration(timedelta(milliseconds=value))
        return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
    text = "yes" if value is True else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _row(name: str, text: str) -> str:
    shown = name.removesuffix("_ms").replace("_", " ")
    return f"<tr><td {_CELL}>{escape(shown)}</td><td {_CELL}>{escape(text)}</td></tr>"


def _list(name: str, entries: Sequence[Any]) -> str:
    """Return a list as a table of its first entries, collapsed."""
    shown = entries[:_MOST_ENTRIES]
    if isinstance(shown[0], dict):
        columns = [key for key in shown[0] if any(_is_plain(one.get(key)) for one in shown)]
        lines = [_line("th", (key.replace("_", " ") for key in columns))]
        lines += [_line("td", (_text(key, one.get(key)) for key in columns)) for one in shown]
    else:
        lines = [_line("td", [str(one)]) for one in shown]
    more = f", the first {_MOST_ENTRIES}" if len(entries) > _MOST_ENTRIES else ""
    summary = f"{len(entries):,} {name.replace('_', ' ')}{more}"
    return f"<details><summary>{escape(summary)}</summary><table>{''.join(lines)}</table></details>"


def _line(tag: str, texts: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag} {_CELL}>{escape(text)}</{tag}>" for text in texts) + "</tr>"
