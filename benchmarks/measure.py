"""Time and peak memory of a piece of work, each run in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM = """
import json, os, sys, time
sys.path.append({here!r})
from process_tree import Watch, peak_mib
{setup}
with Watch(os.getpid(), sample_seconds=0.25) as watch:
    started = time.perf_counter()
    {work}
    seconds = time.perf_counter() - started
mib = max(watch.peak_rss_bytes / 2**20, peak_mib())
print(json.dumps({{"seconds": seconds, "cpu": watch.cpu_seconds, "mib": mib}}))
"""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What several runs of one piece of work took."""

    name: str
    median_seconds: float
    worst_seconds: float
    #: Work of all cores and processes together: the number to look at on a busy machine.
    median_cpu_seconds: float
    #: The most memory that any run had at any time.
    peak_mib: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """A piece of work; only `work` is timed."""

    name: str
    setup: str
    work: str


def measure(cases: Sequence[Case], *, runs: int) -> list[Measurement]:
    """Run every case `runs` times, in turns: what else the machine does then hits all alike."""
    here = str(Path(__file__).parent)
    programs = [
        _PROGRAM.format(here=here, setup=case.setup, work=indent(case.work, "    ").lstrip())
        for case in cases
    ]
    rounds = [[_run_once(program) for program in programs] for _ in range(runs)]
    by_case = zip(*rounds, strict=True)
    return [_summary(case.name, found) for case, found in zip(cases, by_case, strict=True)]


def _summary(name: str, found: Sequence[dict[str, float]]) -> Measurement:
    seconds = [run["seconds"] for run in found]
    return Measurement(
        name=name,
        median_seconds=statistics.median(seconds),
        worst_seconds=max(seconds),
        median_cpu_seconds=statistics.median(run["cpu"] for run in found),
        peak_mib=max(run["mib"] for run in found),
    )


def _run_once(program: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout.splitlines()[-1])
