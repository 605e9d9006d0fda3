"""docs/reliability.md: what the campaign has tried so far."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_START, _END = "<!-- campaign: written by tests/campaign -->", "<!-- end of campaign -->"
_COLUMNS = {
    "trials": "trials",
    "operations": "operations",
    "writer_commits": "commits of writers",
    "kills": "kills",
    "stops": "stops",
    "faults": "storage faults",
    "rows_compared": "rows compared",
    "seconds": "seconds",
    "failed": "failed",
}
#: Counts that are listed, by how their names begin.
_LISTS = {
    "Kills, by the last step that was reached or by what was killed": "killed ",
    "Operations by verb": "verb ",
    "Typed errors": "error ",
}


def publish(kinds: Mapping[str, Counter[str]], page: Path) -> None:
    """Replace the part of the page between its marks."""
    text = page.read_text()
    before, _, rest = text.partition(_START)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_START}\n\n{describe(kinds)}\n{_END}{after}")


def describe(kinds: Mapping[str, Counter[str]]) -> str:
    everything = sum(kinds.values(), Counter())
    lines = ["| kind | " + " | ".join(_COLUMNS.values()) + " |", "|---|" + "---:|" * len(_COLUMNS)]
    for kind, counted in [*sorted(kinds.items()), ("all", everything)]:
        numbers = " | ".join(f"{counted[name]:,}" for name in _COLUMNS)
        lines.append(f"| {kind} | {numbers} |")
    for title, prefix in _LISTS.items():
        some = [
            (count, name.removeprefix(prefix))
            for name, count in everything.items()
            if name.startswith(prefix)
        ]
        told = ", ".join(f"{name} {count:,}" for count, name in sorted(some, reverse=True))
        lines += ["", f"{title}: {told or 'none'}."]
    return "\n".join(lines) + "\n"
