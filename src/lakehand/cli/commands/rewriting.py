"""Commands that rewrite files, and the one that says beforehand what they would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.opening import open_for_command, open_for_rewriting
from lakehand.cli.options import engine_options, planning_options, setting_option, table_options
from lakehand.cli.output import print_document, print_lines, print_report, print_screen
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED

if TYPE_CHECKING:
    from click.decorators import FC

    from lakehand.planning.plan import Plan
    from lakehand.rewrite.prepare import RewriteOperation


def order_options(command: FC) -> FC:
    """Add what says in which order rows are put."""
    by = click.option(
        "--by",
        metavar="COLUMNS",
        default="",
        help="Columns, with commas between them; else those that the table declares.",
    )
    curve = click.option(
        "--curve",
        type=click.Choice(["hilbert", "zorder", "linear"]),
        default="hilbert",
        show_default=True,
        help="linear sorts by one column after the other.",
    )
    full = click.option("--full", is_flag=True, help="Rewrite all files, those in order as well.")
    return by(curve(full(command)))


def stored_plan_option(command: FC) -> FC:
    """Add the plan that is carried out."""
    return click.option(
        "--plan",
        "plan_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Carry out this plan, which `plan --output` stored, as it is.",
    )(command)


@click.command(short_help="Say what compact or cluster would rewrite, and why.")
@table_options
@click.option(
    "--operation",
    type=click.Choice(["compact", "cluster"]),
    help="The verb that is planned; not given: cluster with --by or --full, else compact.",
)
@order_options
@planning_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Store the plan, to be carried out later by `--plan FILE` of its verb.",
)
@click.option("--files", "list_files", is_flag=True, help="List every file with its reason, too.")
def plan(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    operation: RewriteOperation | None,
    output: Path | None,
    list_files: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Say what `compact`, or `cluster`, would rewrite in TABLE, why, and what it would cost.

    Reads the log and the footers of files that are worth a look, and to cluster a sample of their
    rows, which tells what queries would skip. Writes nothing to the table.
    """
    from lakehand.cli.files import planned_file_lines, planned_file_records
    from lakehand.cli.screens.plan import plan_screen
    from lakehand.rewrite.prepare import plan_request

    wish = {name: options.pop(name) for name in ("by", "full", "curve", "where", "automatic")}
    opened = open_for_command(table, storage_options)
    planned = opened.planned(plan_request(operation, **wish), **options)
    if output is not None:
        _store_plan(planned.plan, output)
    if as_json:
        records = ("files", planned_file_records(planned)) if list_files else None
        print_document(planned.plan.to_json(), records=records)
        return
    print_screen(*plan_screen(planned.plan, stored_in=output))
    if list_files:
        print_lines(planned_file_lines(planned))


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@stored_plan_option
@planning_options
@click.option(
    "--sort-by",
    metavar="COLUMNS",
    default="",
    help="Put the rows of every group in order, for example by: a DESC, b.",
)
@click.option(
    "--recompute-statistics",
    is_flag=True,
    help="Then compute missing statistics of the other files, in a commit of its own.",
)
@click.option(
    "--update-indices",
    is_flag=True,
    default=None,
    help="Then add rows that came after them to the indices of a Lance table.",
)
@setting_option("--prove", "prove", metavar="[digest|independent|counts]")
@engine_options
def compact(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    plan_file: Path | None,
    **options: Any,
) -> int:
    """Merge the small files of TABLE, and drop its deleted rows.

    Every group of files is proved to hold the same rows before anything is committed. The old files
    stay, because earlier versions of the table refer to them.
    """
    from lakehand.cli.screens.operation import operation_screen

    stored = None if plan_file is None else _read_plan(plan_file)
    opened = open_for_rewriting(table, storage_options, dry_run=dry_run, **options)
    with progress_bar() as on_progress:
        report = opened.compact(plan=stored, dry_run=dry_run, on_progress=on_progress, **options)
    print_report(report, operation_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


@click.command(short_help="Put rows that belong together into the same files.")
@table_options
@order_options
@stored_plan_option
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@planning_options
@setting_option("--prove", "prove", metavar="[digest|independent|counts]")
@engine_options
def cluster(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    plan_file: Path | None,
    **options: Any,
) -> int:
    """Put rows of TABLE that are near each other in some columns into the same files.

    Queries with conditions on these columns then skip the other files. Files in order are left
    alone, unless too many of them lie over one another. Every group of files is proved to hold the
    same rows before anything is committed.
    """
    from lakehand.cli.screens.operation import cluster_screen

    stored = None if plan_file is None else _read_plan(plan_file)
    opened = open_for_rewriting(table, storage_options, **options)
    with progress_bar() as on_progress:
        report = opened.cluster(plan=stored, on_progress=on_progress, **options)
    print_report(report, cluster_screen, as_json=as_json)
    return EXIT_FAILED if report.errors else 0


def _store_plan(plan: Plan, file: Path) -> None:
    try:
        file.write_text(plan.to_text())
    except OSError as error:
        raise click.FileError(str(file), hint=error.strerror) from error


def _read_plan(file: Path) -> Plan:
    from lakehand.planning.plan import Plan

    return Plan.from_text(file.read_text())
