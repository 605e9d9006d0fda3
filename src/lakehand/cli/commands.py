"""The commands: thin, each one verb of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.options import (
    engine_options,
    json_option,
    logging_options,
    setting_option,
    table_options,
    timestamp_option,
    version_option,
)
from lakehand.cli.output import print_document, print_lines, print_screen
from lakehand.cli.progress import progress_bar
from lakehand.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.table import Table


def _open(table: str, storage_options: Mapping[str, str], **settings: Any) -> Table:
    # `lakehand --help` needs neither Arrow nor DuckDB.
    from lakehand.table import open_table

    return open_table(table, storage_options=storage_options, **settings)


@click.command()
@table_options
@version_option
@timestamp_option
@click.option("--files", "list_files", is_flag=True, help="List every file, too.")
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def inspect(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    version: int | None,
    timestamp: str | None,
    list_files: bool,  # noqa: FBT001
    target_file_bytes: int | None,
) -> None:
    """Say what is wrong with TABLE, in numbers. Reads only.

    TABLE is a path or a URL (s3://, r2://, az://, gs://, file://).
    """
    from lakehand.cli.files import file_lines, file_records
    from lakehand.cli.screens import inspection_screen

    opened = _open(table, storage_options, target_file_bytes=target_file_bytes)
    snapshot = opened.snapshot(version=version, timestamp=timestamp)
    report = opened.inspect_snapshot(snapshot)
    if as_json:
        records = ("files", file_records(snapshot)) if list_files else None
        print_document(report.to_json(), records=records)
        return
    print_screen(*inspection_screen(report))
    if list_files:
        print_lines(file_lines(snapshot))


@click.command()
@table_options
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="Show at most N commits.")  # fmt: skip
def history(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    limit: int,
) -> None:
    """Show the commits of TABLE, newest first. Reads only."""
    from lakehand.cli.screens import history_screen

    opened = _open(table, storage_options)
    entries = opened.history(limit=limit)
    if as_json:
        records = ("commits", (entry.to_json() for entry in entries))
        print_document({"table": opened.url, "format": opened.format}, records=records)
    else:
        print_screen(*history_screen(entries))


@click.command()
@table_options
@version_option
def checkpoint(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    version: int | None,
) -> None:
    """Fold the log of TABLE into a checkpoint, so that it opens fast.

    Nothing is written if a complete checkpoint of the version is there. The table's rows and
    versions stay as they are.
    """
    from lakehand.cli.screens import checkpoint_screen

    report = _open(table, storage_options).checkpoint(version=version)
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*checkpoint_screen(report))


@click.command()
@table_options
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
@setting_option("--min-files", "min_files", metavar="N")
@engine_options
def compact(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
    **settings: Any,
) -> int:
    """Merge the small files of TABLE, and drop its deleted rows.

    Every group of files is proved to hold the same rows before anything is committed. The old files
    stay, because earlier versions of the table refer to them.
    """
    from lakehand.cli.screens import operation_screen

    opened = _open(table, storage_options)
    with progress_bar() as on_progress:
        report = opened.compact(dry_run=dry_run, on_progress=on_progress, **settings)
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*operation_screen(report))
    return EXIT_FAILED if report.errors else 0


@click.command()
@json_option
@logging_options
def settings(as_json: bool) -> None:  # noqa: FBT001
    """Show every setting, its value and where the value comes from."""
    from lakehand.cli.screens import settings_screen
    from lakehand.settings import Settings

    chosen = Settings()
    if as_json:
        values = {name: {"value": chosen[name], "source": chosen.sources[name]} for name in chosen}
        print_document({"settings": values})
    else:
        print_screen(*settings_screen(chosen))


COMMANDS: tuple[click.Command, ...] = (inspect, history, compact, checkpoint, settings)
