"""Results as Markdown, printed after a run and kept in the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chart import picture
from goals import verdicts_on
from labels import OURS, label_of, seconds_text, times_text

if TYPE_CHECKING:
    from pathlib import Path

    from outcomes import Comparison, Report, Result

BEGIN = "<!-- results: written by benchmarks/bench_compact.py -->"
END = "<!-- end of results -->"
PAGE = "benchmarks.md"
PICTURE = "images/compaction.svg"

_HEAD = ("", "median s", "worst s", "against lakehand", "CPU s", "peak MiB", "files", "MB", "rows")


def publish(report: Report, docs: Path) -> None:
    """Put the results into the page, between its markers, and draw the picture."""
    page = docs / PAGE
    page.write_text(with_results(page.read_text(encoding="utf-8"), report), encoding="utf-8")
    (docs / PICTURE).parent.mkdir(exist_ok=True)
    (docs / PICTURE).write_text(picture(report), encoding="utf-8")


def with_results(page: str, report: Report | None) -> str:
    """Return the page with these results instead of those that it holds."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    image = f"![Seconds of every contender]({PICTURE})\n\n"
    results = image + tables(report) if report else "No full run is stored yet.\n"
    return f"{head}{BEGIN}\n\n{results}\n{END}{tail}"


def tables(report: Report) -> str:
    """Return all tables and verdicts as Markdown."""
    parts = [_circumstances(report)]
    for comparison in report.comparisons:
        parts += [f"### {comparison.title}", _table(comparison), *_judgement(comparison)]
    return "\n\n".join(parts) + "\n"


def _circumstances(report: Report) -> str:
    machine, versions = report.machine, report.versions
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"Measured on {report.taken_on} at scale factor {report.scale:g}: {machine['cores']:g} "
        f"cores, {machine['memory_gib']:g} GiB of memory, load {machine['load_before']:.1f} before "
        f"the start. {named}."
    )


def _table(comparison: Comparison) -> str:
    base = comparison.result(OURS[0]) or comparison.result(OURS[1])
    rows = [_HEAD, ("---",) + ("---:",) * (len(_HEAD) - 1), _row_before(comparison)]
    rows += [_row(result, comparison, base) for result in comparison.results]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row_before(comparison: Comparison) -> tuple[str, ...]:
    before = comparison.before
    return ("*before*", "", "", "", "", "", str(before.files), _megabytes(before.bytes),
            f"{before.rows:,}")  # fmt: skip


def _row(result: Result, comparison: Comparison, base: Result | None) -> tuple[str, ...]:
    label = f"**{label_of(result.name)}**" if result.name in OURS else label_of(result.name)
    if not result.runs or result.after is None:
        return (label, "cannot", *("",) * (len(_HEAD) - 2))
    against = times_text(result.median_seconds / base.median_seconds) if base else ""
    return (
        label,
        seconds_text(result.median_seconds),
        seconds_text(result.worst_seconds),
        against,
        seconds_text(result.median_cpu_seconds),
        f"{result.peak_mib:,.0f}",
        str(result.after.files),
        _megabytes(result.after.bytes),
        _rows(result, comparison),
    )


def _rows(result: Result, comparison: Comparison) -> str:
    if result.is_same_rows is None:
        return ""
    if result.is_same_rows:
        is_less = result.after.rows == comparison.before.rows
        return "same" if is_less else "all, including deleted"
    return f"**wrong: {result.after.rows:,}**"


def _judgement(comparison: Comparison) -> list[str]:
    """Return remarks and verdicts, each list as one block."""
    remarks = [
        f"- {label_of(result.name)} cannot: {result.error}"
        for result in comparison.results
        if result.error
    ]
    runs = {label_of(result.name): len(result.runs) for result in comparison.results}
    remarks.append(f"- Runs: {_counts(runs)}.")
    ours = (comparison.result(name) for name in OURS)
    remarks += [f"- {label_of(one.name)}, groups: {_methods(one)}." for one in ours if one]
    verdicts = [
        f"- {label_of(name)}: {verdict.goal}: {verdict.found}, **{verdict.word}**"
        for name in OURS
        for verdict in verdicts_on(comparison, name)
    ]
    return ["\n".join(block) for block in (remarks, verdicts) if block]


def _methods(result: Result) -> str:
    return ", ".join(f"{count} by {method}" for method, count in result.methods.items() if count)


def _counts(runs: dict[str, int]) -> str:
    if len(set(runs.values())) == 1:
        return f"{next(iter(runs.values()))} of each"
    return ", ".join(f"{count} of {label}" for label, count in runs.items())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"
