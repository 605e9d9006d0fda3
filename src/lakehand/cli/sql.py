"""`lakehand sql`: run a statement, or open a shell."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.maintain import maintenance_exit_code
from lakehand.cli.output import print_document
from lakehand.cli.progress_bar import progress_bar
from lakehand.cli.service_options import config_option, open_client, store_option
from lakehand.cli.shared_options import json_option, logging_options, storage_option
from lakehand.cli.sql_screens import print_result_screen
from lakehand.errors import EXIT_FAILED, EXIT_UNHEALTHY
from lakehand.model.maintenance import MaintenanceReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lakehand.service.client_values import JobEntry
    from lakehand.sql.results import SqlResult
    from lakehand.sql.sql_session import SqlSession

_FORMATS = ("table", "json", "csv", "arrow")


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
        return maintenance_exit_code(result.value)
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
    else:
        print_result_screen(result, is_vertical=is_vertical)
