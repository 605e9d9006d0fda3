"""What became of statistics, and of proofs that were checked again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from lakehand.cli.screens.words import figures_grid, time_words
from lakehand.model.quantities import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from lakehand.model.reports import StatisticsReport
    from lakehand.model.verification import Finding, ProofCheck, Verification


def statistics_screen(report: StatisticsReport) -> Iterable[RenderableType]:
    """Show what was computed, in a few lines."""
    yield Text(f"{report.operation}: {_outcome_words(report)}", style="bold")
    yield figures_grid(_figures(report))
    for error in report.errors:
        yield Text(f"  failed: {error['message']}", style="red")


def _outcome_words(report: StatisticsReport) -> str:
    return {
        "committed": f"version {report.version:,} committed",
        "nothing_to_do": "nothing to do",
        "dry_run": "nothing was written",
    }[report.outcome]


def _figures(report: StatisticsReport) -> Iterator[tuple[str, str]]:
    yield "files", f"{format_count(report.files_chosen, 'file')} of {report.files_before:,} chosen"
    words = {
        "computed": report.files_refreshed,
        "right already": report.files_unchanged,
        "lost to concurrent writers": report.files_dropped,
        "left for a later run": report.files_remaining,
    }
    for what, count in words.items():
        if count:
            yield "", f"{count:,} {what}"
    if report.rows_read:
        took = time_words(report.duration_ms, report.ran_on)
        yield "took", f"{took}, {report.rows_read:,} rows read"


_AGREEMENT_WORDS = {
    "equal": "rows are equal",
    "differs": "ROWS DIFFER",
    "cannot_compare": "nothing can be compared",
}


def verification_screen(report: Verification) -> Iterable[RenderableType]:
    """Show what is wrong, every commit whose proof was checked, and what came of it."""
    yield Text(f"{report.operation}: {_soundness_words(report)}", style="bold")
    yield figures_grid(_structure_figures(report))
    yield from findings_list(report.findings)
    for check in report.proofs:
        yield figures_grid(_check_figures(check))
    yield Text(f"  took {format_duration(timedelta(milliseconds=report.duration_ms))}")


def _soundness_words(report: Verification) -> str:
    if report.outcome == "sound":
        return "the table is sound"
    count = len(report.findings)
    return format_count(count, "finding") if count else _AGREEMENT_WORDS[report.proof_outcome]


def _structure_figures(report: Verification) -> Iterator[tuple[str, str]]:
    if report.version is not None:
        is_old = report.readable_version != report.version
        newest = report.readable_version
        can = f"; version {newest:,} can be read" if newest is not None else "; none can be read"
        yield "newest version", f"{report.version:,}{can if is_old else ''}"
    looked = [
        format_count(report.commits_checked, "commit"),
        format_count(report.checkpoints_checked, "checkpoint"),
        format_count(report.files_checked, "file") + (" with all rows" if report.deep else ""),
    ]
    yield "checked", ", ".join(looked)
    if not report.proofs:
        yield "proofs", "none was checked"


def findings_list(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Show what is wrong, and once a kind what to do about it."""
    told: set[str] = set()
    for finding in findings:
        yield Text.assemble(("  " + finding.name, "bold red"), f": {finding.message}")
        if finding.name not in told:
            yield Text.assemble(("    hint: ", "bold cyan"), finding.hint)
            told.add(finding.name)


def _check_figures(check: ProofCheck) -> Iterator[tuple[str, str]]:
    yield f"version {check.version:,}", f"{_AGREEMENT_WORDS[check.outcome]}: {check.message}"
    if check.inputs is not None and check.outputs is not None:
        inputs, outputs = (
            format_count(side.files, "file") for side in (check.inputs, check.outputs)
        )
        yield "", f"{inputs} replaced by {outputs}"
    if check.matches_record is not None:
        answer = "matches" if check.matches_record else "does not match"
        yield "", f"the proof in the commit {answer}"
