"""`lakehand verify`: check a table for damage, and rewrites for lost rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid
from lakehand.cli.shared_options import (
    engine_options,
    open_for_command,
    table_options,
    version_option,
)
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY
from lakehand.model.quantities import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from lakehand.model.verification import Finding, ProofCheck, Verification


@click.command()
@table_options
@version_option
@click.option("--all", "every", is_flag=True, help="Check every commit with a proof.")
@click.option("--no-proofs", is_flag=True, help="Check the table for damage only.")
@click.option("--deep", is_flag=True, help="Also decode the rows of every file.")
@engine_options
def verify(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    no_proofs: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Check TABLE for damage, and that a rewrite kept every row. Reads only.

    Checks all commits, checkpoints and files, even if the table cannot be opened. Then compares
    the rows that a commit replaced with those that it wrote: the newest commit with a proof, or
    that of --version. Exit code 5 if anything is wrong, 1 if a requested proof cannot be compared
    any more.
    """
    if sum((options["every"], options["version"] is not None, no_proofs)) > 1:
        raise click.UsageError("--all, --version and --no-proofs are mutually exclusive")
    opened = open_for_command(table, storage_options)
    with progress_bar():
        report = opened.verify(proofs=not no_proofs, **options)
    print_report(report, verification_screen, as_json=as_json)
    if report.outcome == "damaged":
        return EXIT_UNHEALTHY
    is_asked = options["every"] or options["version"] is not None
    return EXIT_FAILED if is_asked and report.proof_outcome == "cannot_compare" else 0


_AGREEMENT_NAMES = {
    "equal": "rows are equal",
    "differs": "ROWS DIFFER",
    "cannot_compare": "cannot be compared",
}


def verification_screen(report: Verification) -> Iterable[RenderableType]:
    """Show every finding, and the result of every proof that was checked."""
    yield Text(f"{report.operation}: {_describe_soundness(report)}", style="bold")
    yield figures_grid(_structure_figures(report))
    yield from findings_list(report.findings)
    for check in report.proofs:
        yield figures_grid(_check_figures(check))
    yield Text(f"  took {format_duration(timedelta(milliseconds=report.duration_ms))}")


def _describe_soundness(report: Verification) -> str:
    if report.outcome == "sound":
        return "the table is sound"
    count = len(report.findings)
    return format_count(count, "finding") if count else _AGREEMENT_NAMES[report.proof_outcome]


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
        yield "proofs", "none checked"


def findings_list(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Show every finding, with one hint per kind."""
    shown: set[str] = set()
    for finding in findings:
        yield Text.assemble(("  " + finding.name, "bold red"), f": {finding.message}")
        if finding.name not in shown:
            yield Text.assemble(("    hint: ", "bold cyan"), finding.hint)
            shown.add(finding.name)


def _check_figures(check: ProofCheck) -> Iterator[tuple[str, str]]:
    yield f"version {check.version:,}", f"{_AGREEMENT_NAMES[check.outcome]}: {check.message}"
    if check.inputs is not None and check.outputs is not None:
        inputs, outputs = (
            format_count(side.files, "file") for side in (check.inputs, check.outputs)
        )
        yield "", f"{inputs} replaced by {outputs}"
    if check.matches_record is not None:
        answer = "matches" if check.matches_record else "does not match"
        yield "", f"the proof in the commit {answer}"
