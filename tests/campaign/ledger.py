"""What was tried: a line of JSON for each trial, and the results of all sittings so far.

A sitting writes its own ledger, which is added to the committed results; these say which trials
they hold, as ranges of seeds for each kind, so that no trial is counted twice: a sitting goes on
behind them, and lines of trials that they hold already are not added.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


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


@dataclass(kw_only=True)
class Results:
    """What all sittings have counted, and which trials that were, by kind."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    seeds: dict[str, set[int]] = field(default_factory=dict)

    def add(self, entry: Entry) -> bool:
        """Add a trial, unless it is counted already; return whether it was added."""
        seeds = self.seeds.setdefault(entry.kind, set())
        if entry.seed in seeds:
            return False
        seeds.add(entry.seed)
        counted = self.counts.setdefault(entry.kind, Counter())
        counted.update(entry.counts)
        counted["trials"] += 1
        counted["failed"] += entry.failure is not None
        counted["seconds"] += round(entry.seconds)
        return True

    def to_json(self) -> str:
        counts = {kind: dict(sorted(some.items())) for kind, some in sorted(self.counts.items())}
        seeds = {kind: format_ranges(some) for kind, some in sorted(self.seeds.items())}
        return json.dumps({"seeds": seeds, "counts": counts}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        document = json.loads(text)
        return cls(
            counts={kind: Counter(some) for kind, some in document["counts"].items()},
            seeds={kind: parse_ranges(some) for kind, some in document["seeds"].items()},
        )


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges.

    >>> format_ranges([4, 0, 1, 2, 9, 8])
    '0-2,4,8-9'
    """
    ordered = sorted(set(numbers))
    told = []
    # Numbers of a range differ from their places by the same.
    for _, group in itertools.groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        first, *rest = (number for _, number in group)
        told.append(f"{first}-{rest[-1]}" if rest else str(first))
    return ",".join(told)


def parse_ranges(text: str) -> set[int]:
    """Return the numbers of ranges.

    >>> sorted(parse_ranges("0-2,4"))
    [0, 1, 2, 4]
    """
    pairs = [one.partition("-") for one in text.split(",") if one]
    return {
        number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)
    }


class Ledger:
    """The trials of a sitting, and the committed results that they are added to."""

    def __init__(self, path: Path, *, published: Path) -> None:
        self._path, self._published = path, published
        path.parent.mkdir(parents=True, exist_ok=True)

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        return [Entry(**json.loads(line)) for line in lines if line]

    def add(self, entry: Entry) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def new_seeds(self, kind: str, first: int = 0) -> Iterator[int]:
        """Yield seeds from `first` on, without those of trials that were run."""
        done = self.totals().seeds.get(kind, set())
        return (seed for seed in itertools.count(first) if seed not in done)

    def totals(self) -> Results:
        """Return the committed results, with those of this sitting."""
        results = Results()
        if self._published.exists():
            results = Results.from_json(self._published.read_text())
        for entry in self.entries():
            results.add(entry)
        return results

    def publish(self) -> Results:
        """Add the trials of this sitting to the committed results, and begin a new ledger."""
        results = self.totals()
        new = self._published.with_suffix(".new")
        new.write_text(results.to_json())
        new.replace(self._published)
        if self._path.exists():
            number = len(list(self._path.parent.glob(f"{self._path.stem}-*")))
            self._path.rename(self._path.with_stem(f"{self._path.stem}-{number}"))
        return results
