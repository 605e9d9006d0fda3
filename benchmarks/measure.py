"""Time and peak memory of a piece of work, each run in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROGRAM = """
import json, resource, sys, time
{setup}
started, worked = time.perf_counter(), time.process_time()
{work}
seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"seconds": seconds, "cpu": cpu_seconds, "mib": peak_kib / 1024}}))
"""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What several runs of one piece of work took."""

    name: str
    median_seconds: float
    worst_seconds: float
    #: Work of all cores together: the number to look at on a busy machine.
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
    programs = [_PROGRAM.format(setup=case.setup, work=case.work) for case in cases]
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
