"""The goals of compaction, and whether a comparison meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labels import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcomes import Comparison, Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One goal and what was found; `is_met` decides, not the rounded text."""

    goal: str
    found: str
    is_met: bool

    @property
    def word(self) -> str:
        return "met" if self.is_met else "missed"


#: Workload, peer, how many times its speed at least.
FASTER = (("large", "delta-rs", 10), ("large", "delta-spark", 40), ("tiny", "delta-rs", 2))
#: Workload, peer, how many times its time at most.
WITHIN = (("large", "bytes", 2), ("tiny", "duckdb", 1.5))
#: Workload, seconds.
UNDER = (("large", 5),)


def verdicts_on(comparison: Comparison, name: str) -> list[Verdict]:
    """Judge the contender `name` by the goals of this workload whose peers took part."""
    ours = comparison.result(name)
    return [] if ours is None else list(_verdicts(comparison, ours))


def _verdicts(comparison: Comparison, ours: Result) -> Iterator[Verdict]:
    for peer, limit in _limits(comparison, FASTER):
        ratio = peer.median_seconds / ours.median_seconds
        goal = f"at least {limit} times as fast as {label_of(peer.name)}"
        yield Verdict(goal=goal, found=f"{ratio:.1f} times", is_met=ratio >= limit)
    for peer, limit in _limits(comparison, WITHIN):
        ratio = ours.median_seconds / peer.median_seconds
        goal = f"at most {limit:g} times the time of {label_of(peer.name)}"
        yield Verdict(goal=goal, found=f"{ratio:.2f} times", is_met=ratio <= limit)
    for workload, seconds in UNDER:
        if workload == comparison.name:
            found = ours.median_seconds
            goal = f"under {seconds} s"
            yield Verdict(goal=goal, found=f"{found:.2f} s", is_met=found < seconds)
    yield from _about_content(comparison, ours)


def _about_content(comparison: Comparison, ours: Result) -> Iterator[Verdict]:
    if ours.after is None:
        return
    grown = ours.after.bytes - comparison.before.bytes
    part = grown / comparison.before.bytes
    found = f"{abs(grown):,} bytes {'more' if grown > 0 else 'fewer'} ({part:+.3%})"
    yield Verdict(goal="not more bytes after than before", found=found, is_met=grown <= 0)
    is_same = ours.is_same_rows is True
    found = "equal" if is_same else "not equal"
    yield Verdict(goal="the same rows after as before", found=found, is_met=is_same)


def _limits(
    comparison: Comparison, rules: tuple[tuple[str, str, float], ...]
) -> Iterator[tuple[Result, float]]:
    for workload, name, limit in rules:
        peer = comparison.result(name)
        if workload == comparison.name and peer is not None:
            yield peer, limit
