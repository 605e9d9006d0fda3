"""Sections of the page of benchmarks: each is a comparison that a script makes, stores and draws.

`bench_<name>.py` writes `results/<name>.json` and what stands between the markers of `<name>`.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from contest import ContenderError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contest import Contender
    from outcomes import Run

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Results of one kind: where they are stored, and how they look in the page."""

    name: str
    #: Returns results as Markdown.
    table: Callable[[dict], str]

    @property
    def results(self) -> Path:
        return ROOT / "benchmarks" / "results" / f"{self.name}.json"

    def keep(self, found: dict, *, is_full: bool) -> None:
        """Store results, apart from those of the page if they are not full, and print them."""
        path = self.results if is_full else self.results.with_stem(f"{self.name}-partial")
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(self.table(found))

    def draw(self) -> dict:
        """Put what is stored into the page and return it."""
        found = self.kept()
        PAGE.write_text(self.with_results(PAGE.read_text(), found))
        return found

    def kept(self) -> dict:
        """Return what is stored."""
        found: dict = json.loads(self.results.read_text())
        return found

    def with_results(self, page: str, found: dict | None) -> str:
        """Return the page with these results instead of those that it holds."""
        begin = f"<!-- {self.name}: written by benchmarks/bench_{self.name}.py -->"
        end = f"<!-- end of {self.name} -->"
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        results = self.table(found) if found else "No full run is stored yet."
        return f"{head}{begin}\n\n{results}\n\n{end}{tail}"


def circumstances() -> dict:
    """Return what results depend on; to be asked for before the first run."""
    return {
        "taken_on": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def in_words(found: dict, subject: str) -> str:
    """Return the circumstances of results as a sentence."""
    return (
        f"Measured on {found['taken_on']}: {subject}, {found['cores']} cores, load"
        f" {found['load_before']} at the start."
    )


def ask(contender: Contender, result: dict, method: str, **arguments: object) -> Run | None:
    """Let a contender run once and note what came of it; None if it cannot, now or before."""
    if "error" in result:
        return None
    try:
        measured, _ = contender.ask(method, **arguments)
    except ContenderError as error:
        result["error"] = str(error).partition("\n")[0]
        print(f"{contender.name:15} {result['error']}")
        return None
    result.setdefault("runs", []).append(asdict(measured))
    return measured


def median(result: dict, member: str) -> float | None:
    """Return the median of a member of all runs; None if there are none."""
    runs = result.get("runs")
    return statistics.median(run[member] for run in runs) if runs else None


def row(*cells: str, width: int) -> str:
    """Return a row of a table, with empty cells at its end where there are too few."""
    filled = [*cells, *[""] * (width - len(cells))]
    return " ".join(f"| {cell}" if cell else "|" for cell in filled) + " |"


def head(titles: Sequence[str]) -> list[str]:
    """Return the first two rows of a table: names at the left, numbers at the right."""
    return [row(*titles, width=len(titles)), "|---" + "|---:" * (len(titles) - 1) + "|"]
