"""Commands that only read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import (
    json_option,
    logging_options,
    setting_option,
    table_options,
    timestamp_option,
    version_option,
)
from lakehand.cli.output import print_document, print_lines, print_screen

if TYPE_CHECKING:
    from lakehand.assess.inspect import Inspection
    from lakehand.model.snapshot import Snapshot

_PICTURE_COLUMNS = 2


@click.command()
@table_options
@version_option
@timestamp_option
@click.option("--files", "list_files", is_flag=True, help="List every file, too.")
@click.option(
    "--orphans",
    is_flag=True,
    help="List storage, too, and every file in it that no version within the retention needs.",
)
@click.option(
    "--by",
    metavar="COLUMNS",
    default="",
    help="Say how well these columns (with commas between) keep the files apart.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Draw the files over the two columns of --by, as SVG.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def inspect(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    list_files: bool,  # noqa: FBT001
    orphans: bool,  # noqa: FBT001
    by: str,
    picture: Path | None,
    target_file_bytes: int | None,
    **moment: Any,
) -> None:
    """Say what is wrong with TABLE, in numbers. Reads only.

    TABLE is a path or a URL (s3://, r2://, az://, gs://, file://).
    """
    from lakehand.cli.files import file_lines, file_records, orphan_lines, orphan_records
    from lakehand.cli.screens.inspection import inspection_screen
    from lakehand.model.order import column_names

    if orphans and list_files:
        raise click.UsageError("--files and --orphans exclude each other")
    columns = column_names(by)
    if picture is not None and len(columns) != _PICTURE_COLUMNS:
        raise click.UsageError("--picture is drawn over two columns: name them as --by a,b")
    opened = open_for_command(table, storage_options, target_file_bytes=target_file_bytes)
    snapshot = opened.snapshot(statistics=columns, **moment)
    report = opened.inspect_snapshot(snapshot, by=columns)
    if picture is not None:
        _draw(report, snapshot, picture)
    strays = opened.orphans() if orphans else None
    if as_json:
        records = ("files", file_records(snapshot)) if list_files else None
        records = records if strays is None else ("orphans", orphan_records(strays))
        print_document(report.to_json(), records=records)
        return
    print_screen(*inspection_screen(report))
    if list_files:
        print_lines(file_lines(snapshot))
    if strays is not None:
        print_lines(orphan_lines(strays))


def _draw(report: Inspection, snapshot: Snapshot, file: Path) -> None:
    from lakehand.assess.picture import draw_inspection

    try:
        file.write_text(draw_inspection(report, snapshot.files))
    except OSError as error:
        raise click.FileError(str(file), hint=error.strerror) from error


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
    from lakehand.cli.screens.log import history_screen

    opened = open_for_command(table, storage_options)
    entries = opened.history(limit=limit)
    if as_json:
        records = ("commits", (entry.to_json() for entry in entries))
        print_document({"table": opened.url, "format": opened.format}, records=records)
    else:
        print_screen(*history_screen(entries))


@click.command()
@json_option
@logging_options
def settings(as_json: bool) -> None:  # noqa: FBT001
    """Show every setting, its value and where the value comes from."""
    from lakehand.cli.screens.settings import settings_screen
    from lakehand.settings import Settings

    chosen = Settings()
    if as_json:
        values = {name: {"value": chosen[name], "source": chosen.sources[name]} for name in chosen}
        print_document({"settings": values})
    else:
        print_screen(*settings_screen(chosen))
