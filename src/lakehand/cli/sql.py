"""`lakehand sql`: run a statement, or open a shell."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_document, print_list, print_screen
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.screen import figures_grid
from lakehand.cli.service_options import config_option, open_client, store_option
from lakehand.cli.shared_options import json_option, logging_options, storage_option
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY
from lakehand.model.maintenance import MaintenanceReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from rich.console import RenderableType

    from lakehand.service.client_values import JobEntry
    from lakehand.sql.results import SqlResult
    from lakehand.sql.sql_session import SqlSession

_FORMATS = ("table", "json", "csv", "arrow")
#: The screen of each report: the module of the command, which is imported when it is needed.
_SCREENS: Mapping[str, tuple[str, str]] = {
    "OperationReport": ("compact", "operation_screen"),
    "ClusterReport": ("cluster", "cluster_screen"),
    "StatisticsReport": ("statistics", "statistics_screen"),
    "VacuumReport": ("vacuum", "vacuum_screen"),
    "PurgeReport": ("purge", "purge_screen"),
    "CheckpointReport": ("checkpoint", "checkpoint_screen"),
    "Verification": ("verify", "verification_screen"),
    "RepairReport": ("repair", "repair_screen"),
    "MaintenanceReport": ("maintain", "maintenance_screen"),
    "DeduplicationReport": ("delete", "deletion_screen"),
    "MergeReport": ("delete", "merge_screen"),
    "RestoreReport": ("restore", "restore_screen"),
    "PropertiesReport": ("properties", "change_screen"),
    "Plan": ("plan", "plan_screen"),
}
#: Screens of the service, which say how long ago something was.
_SERVICE_SCREENS: Mapping[str, tuple[str, str]] = {
    "JobEntry": ("jobs", "changed_job_screen"),
    "TableEntry": ("tables", "changed_table_screen"),
    "Explanation": ("tables", "explain_screen"),
}
#: Columns that are drawn of statements with very many; other formats and `\x` have all of them.
_DRAWN: Mapping[str, tuple[str, ...]] = {
    "show jobs": ("id", "table", "verb", "state", "asked_by", "queued_at", "ended_at", "outcome"),
    "show tables": ("id", "name", "url", "format", "policy", "version", "health_score"),
    "show workers": ("id", "host", "pid", "pools", "slots", "started_at"),
    "show settings": ("name", "value", "source", "help"),
    "describe history": ("version", "timestamp", "operation", "summary"),
}
#: Values longer than this are cut on a screen; other formats have them whole.
_SHOWN_CHARACTERS = 200
#: Width that a column needs to be read, and lines between two columns.
_READABLE, _BETWEEN = 16, 3
_TO_SECONDS = len("2026-01-02 03:04:05")


def _read_parameters(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str] | None:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise click.BadParameter(f"{pair!r}: write it as NAME=VALUE")
        found[name] = value
    return found or None


@click.command()
@click.argument("statement", required=False)
@click.option("--format", "form", type=click.Choice(_FORMATS), default="table", show_default=True,
              help="How results are printed; arrow is an IPC stream on stdout.")  # fmt: skip
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE",
              callback=_read_parameters,
              help="Value of :NAME in the statement, a string. Repeatable.")  # fmt: skip
@click.option("--local", is_flag=True,
              help="Run statements in this process, even if a service is configured.")  # fmt: skip
@config_option
@store_option
@storage_option
@json_option
@logging_options
def sql(
    statement: str | None,
    form: str,
    parameters: Mapping[str, str] | None,
    as_json: bool,  # noqa: FBT001
    **service: Any,
) -> int:
    """Run an SQL STATEMENT on a table, or query the system tables.

    Without STATEMENT: a shell on a terminal, else the statements of standard input, separated by
    semicolons, up to the first error. If a service is configured (--config, --store,
    $LAKEHAND_CONFIG or lakehand.toml in this directory), statements that change a table become
    jobs, and the command waits for them unless they say ASYNC.
    """
    from lakehand.engine.import_guard import leave_pandas_out

    leave_pandas_out()
    form = "json" if as_json else form
    with _open_session(**service) as session:
        if statement is not None:
            result = run_statement(session, statement, parameters)
            print_result(result, form)
            return exit_code(result)
        if sys.stdin.isatty() and sys.stdout.isatty():
            from lakehand.cli.sql_shell import Shell

            return Shell(session, form).run()
        return _run_input(session, form)


@contextmanager
def _open_session(
    config: Path | None,
    store: str | None,
    *,
    local: bool,
    storage_options: Mapping[str, str],
) -> Iterator[SqlSession]:
    from lakehand.sql.sql_session import SqlSession

    if local or not _is_service_configured(config, store):
        yield SqlSession(storage_options=storage_options)
        return
    with open_client(config, store) as client:
        yield SqlSession(client=client, storage_options=storage_options, on_job=_Announcer())


def _is_service_configured(config: Path | None, store: str | None) -> bool:
    from lakehand.service.config import find_config

    return store is not None or find_config(config, is_required=False) is not None


class _Announcer:
    """Says on standard error what a job waits for, once for each state."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, entry: JobEntry) -> None:
        from lakehand.service.wait_words import WAITS

        job = entry.job
        state = WAITS[entry.waits_for] if entry.waits_for else f"is {job.state}"
        line = f"job {job.id} {state}"
        if line != self._said and job.ended_at is None:
            click.echo(line, err=True)
        self._said = line


def _run_input(session: SqlSession, form: str) -> int:
    from lakehand.sql.lexer import split_statements

    code = 0
    for statement in split_statements(sys.stdin.read()):
        result = run_statement(session, statement)
        print_result(result, form)
        code = code or exit_code(result)
    return code


def run_statement(
    session: SqlSession, text: str, parameters: Mapping[str, str] | None = None
) -> SqlResult:
    """Run a statement; one that runs an operation here has a progress bar."""
    from lakehand.sql.grammar import parse_statement
    from lakehand.sql.statements import RunVerb

    statement = parse_statement(text, parameters)
    if session.client is None and isinstance(statement, RunVerb):
        with progress_bar():
            return session.execute(statement)
    return session.execute(statement)


def exit_code(result: SqlResult) -> int:
    """Return the exit code of a statement, as that of the command with the same name."""
    report = result.report
    if report is None:  # Rows, or a job that goes on.
        return 0
    if isinstance(result.value, MaintenanceReport):
        return result.value.exit_code
    if result.statement == "verify" and report.get("outcome") == "damaged":
        return EXIT_UNHEALTHY
    if result.statement == "repair" and report["refused" if report["dry_run"] else "remaining"]:
        return EXIT_UNHEALTHY
    return EXIT_FAILED if report.get("errors") else 0


def print_result(result: SqlResult, form: str, *, is_vertical: bool = False) -> None:
    """Print a result in one of the formats."""
    if form == "json":
        print_document(result.to_json())
    elif form == "csv":
        click.echo(result.to_csv(), nl=False)
    elif form == "arrow":
        sys.stdout.buffer.write(result.to_ipc())
    elif result.rows is None:
        print_screen(*_report_screen(result))
    else:
        _print_rows(result, is_vertical=is_vertical)


def _report_screen(result: SqlResult) -> Iterable[RenderableType]:
    kind = type(result.value).__name__
    if kind in _SCREENS:
        return _screen(_SCREENS[kind])(result.value)
    return _screen(_SERVICE_SCREENS[kind])(result.value, time.time())


def _screen(place: tuple[str, str]) -> Callable[..., Iterable[RenderableType]]:
    module, name = place
    found: Callable[..., Iterable[RenderableType]] = getattr(
        importlib.import_module(f"lakehand.cli.{module}"), name
    )
    return found


def _print_rows(result: SqlResult, *, is_vertical: bool) -> None:
    table = result.to_arrow()
    names = [name for name in _DRAWN.get(result.statement, ()) if name in table.column_names]
    if is_vertical or not names:
        names = table.column_names
    left_out = len(table.column_names) - len(names)
    types = {name: table.schema.field(name).type for name in names}
    cells = [[_cell(row[name], types[name]) for name in names] for row in result.to_pylist()]
    if is_vertical or _is_too_wide(names, cells):
        for number, row in enumerate(cells):
            if len(cells) > 1:
                print_screen(Text(f"row {number + 1}", style="dim"))
            print_screen(figures_grid(zip(names, row, strict=True)))
    else:
        print_list(_grid(types, cells))
    print_screen(Text(_count(result, len(cells), left_out), style="dim"))


def _grid(types: Mapping[str, pa.DataType], cells: Sequence[Sequence[str]]) -> Grid:
    grid = Grid(box=box.ROUNDED, header_style="bold")
    for name, kind in types.items():
        is_number = str(kind).startswith(("int", "uint", "float", "double", "decimal"))
        grid.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _is_too_wide(names: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    """Whether columns would have to be too narrow to be read on this terminal."""
    if not (sys.stdout.isatty() and cells):
        return False
    widths = [
        min(_READABLE, max(len(name), *(len(row[place]) for row in cells)))
        for place, name in enumerate(names)
    ]
    return sum(widths) + _BETWEEN * len(widths) + 1 > shutil.get_terminal_size().columns


def _count(result: SqlResult, count: int, left_out: int) -> str:
    rows = f"{count:,} row{'' if count == 1 else 's'}"
    if result.truncated:
        rows += "; there are more, which LIMIT and WHERE choose from"
    if left_out:
        columns = f"{left_out} more column{'' if left_out == 1 else 's'}"
        rows += f"; {columns} with --json, SELECT or \\x"
    return rows


def _cell(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "-"
    if str(kind).startswith("timestamp"):
        return str(value).replace("T", " ")[:_TO_SECONDS]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"
