"""What a comparison found, as plain values that are stored as JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one run took."""

    seconds: float
    #: Work of all cores together.
    cpu_seconds: float
    #: All processes together, at the worst moment.
    peak_mib: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What files hold; equal rows in any order have equal digests."""

    files: int
    bytes: int
    rows: int | None = None
    digest: str | None = None


@dataclass(kw_only=True, slots=True)
class Result:
    """What came of all runs of one contender on one workload."""

    name: str
    runs: list[Run] = field(default_factory=list)
    after: Content | None = None
    #: None: it leaves no rows that could be compared.
    is_same_rows: bool | None = None
    #: Groups by the way they were rewritten, where the contender says so.
    methods: dict[str, int] = field(default_factory=dict)
    #: Why there are no runs, or no more.
    error: str | None = None

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        runs = [Run(**run) for run in found["runs"]]
        after = Content(**found["after"]) if found["after"] else None
        return cls(**{**found, "runs": runs, "after": after})

    @property
    def median_seconds(self) -> float:
        return statistics.median(run.seconds for run in self.runs)

    @property
    def worst_seconds(self) -> float:
        return max(run.seconds for run in self.runs)

    @property
    def median_cpu_seconds(self) -> float:
        return statistics.median(run.cpu_seconds for run in self.runs)

    @property
    def peak_mib(self) -> float:
        return max(run.peak_mib for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All contenders on one workload."""

    name: str
    #: What is special about the files, for the title.
    remark: str
    before: Content
    results: tuple[Result, ...]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        results = tuple(Result.from_json(result) for result in found["results"])
        return cls(**{**found, "before": Content(**found["before"]), "results": results})

    @property
    def title(self) -> str:
        """What there is to do: files, bytes and rows before, and the files of the first."""
        before, after = self.before, self.results[0].after
        many = f"{before.files:,} files{self.remark}, {before.bytes / 1e9:.2f} GB, "
        few = f" → {after.files:,} file{'s' * (after.files != 1)}" if after else ""
        return f"{many}{before.rows / 1e6:.1f} M rows{few}"

    def result(self, name: str) -> Result | None:
        """Return the result of a contender that ran; None if it did not."""
        return next((found for found in self.results if found.name == name and found.runs), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One run of the whole benchmark."""

    taken_on: str
    scale: float
    #: Cores, memory, load before the start.
    machine: Mapping[str, float]
    versions: Mapping[str, str]
    comparisons: tuple[Comparison, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        found = json.loads(path.read_text(encoding="utf-8"))
        comparisons = tuple(Comparison.from_json(one) for one in found["comparisons"])
        return cls(**{**found, "comparisons": comparisons})

    def write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
