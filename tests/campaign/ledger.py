"""What was tried: a line of JSON for each trial, so that the next run goes on behind it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


_NEXT_SEED = "next seed"


@dataclass(frozen=True, kw_only=True)
class Entry:
    kind: str
    seed: int
    #: The version of the source.
    revision: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)
    #: Why it failed; None if it did not.
    failure: str | None = None


class Ledger:
    """Trials that no report holds yet, and what reports hold of all earlier ones, by kind."""

    def __init__(self, path: Path, *, published: Path) -> None:
        self._path, self._published = path, published
        path.parent.mkdir(parents=True, exist_ok=True)

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        return [Entry(**json.loads(line)) for line in self._path.read_text().splitlines() if line]

    def add(self, entry: Entry) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def next_seed(self, kind: str) -> int:
        known = self._earlier().get(kind, {}).get(_NEXT_SEED, 0)
        return max([known, *(entry.seed + 1 for entry in self.entries() if entry.kind == kind)])

    def _earlier(self) -> dict[str, dict[str, int]]:
        if not self._published.exists():
            return {}
        found: dict[str, dict[str, int]] = json.loads(self._published.read_text())
        return found

    def totals(self) -> dict[str, Counter[str]]:
        """Return what all trials counted, by kind."""
        kinds = {kind: Counter(counts) for kind, counts in self._earlier().items()}
        for entry in self.entries():
            counted = kinds.setdefault(entry.kind, Counter())
            counted.update(entry.counts)
            counted["trials"] += 1
            counted["failed"] += entry.failure is not None
            counted["seconds"] += round(entry.seconds)
            counted[_NEXT_SEED] = max(counted[_NEXT_SEED], entry.seed + 1)
        return kinds

    def publish(self) -> dict[str, Counter[str]]:
        """Add what was tried to the published numbers, and begin a new ledger."""
        kinds = self.totals()
        ordered = {kind: dict(sorted(counts.items())) for kind, counts in sorted(kinds.items())}
        self._published.write_text(json.dumps(ordered, indent=1) + "\n")
        if self._path.exists():
            number = len(list(self._path.parent.glob(f"{self._path.stem}-*")))
            self._path.rename(self._path.with_stem(f"{self._path.stem}-{number}"))
        return kinds
