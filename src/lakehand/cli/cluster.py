"""`lakehand cluster`: co-locate related rows so that queries skip files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.compact import operation_screen
from lakehand.cli.output import print_report
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import effect_rows
from lakehand.cli.shared_options import (
    clustering_options,
    dry_run_option,
    engine_options,
    open_for_rewriting,
    planning_options,
    prove_option,
    read_plan,
    stored_plan_option,
    table_options,
)
from lakehand.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.model.reports import ClusterReport


@click.command()
@table_options
@clustering_options
@stored_plan_option
@dry_run_option
@planning_options
@prove_option
@engine_options
def cluster(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    plan_file: Path | None,
    **options: Any,
) -> int:
    """Co-locate related rows of TABLE, so that queries skip files.

    Rows with near values in the given columns are written to the same files; queries with
    conditions on these columns skip the others. Clustered files are not rewritten unless too many
    of them overlap. Every group of files is proved to hold the same rows before the commit.
    """
    opened = open_for_rewriting(table, storage_options, **options)
    with progress_bar():
        report = opened.cluster(plan=read_plan(plan_file), **options)
    print_report(report, cluster_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def cluster_screen(report: ClusterReport) -> Iterable[RenderableType]:
    """Show what a clustering did, and what queries gain from it."""
    return operation_screen(report, effect=_effect(report))


def _effect(report: ClusterReport) -> Iterable[tuple[str, str]]:
    yield "clustered by", f"{', '.join(report.columns)} ({report.curve})"
    about = "about " if report.outcome == "dry_run" else ""
    yield from effect_rows(report.skip_rate, report.overlap_depth, about=about)
