"""`lakehand checkpoint`: write a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_report
from lakehand.cli.shared_options import open_for_command, table_options, version_option
from lakehand.model.quantities import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from lakehand.model.reports import CheckpointReport


@click.command()
@table_options
@version_option
def checkpoint(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    version: int | None,
) -> None:
    """Write a checkpoint of TABLE, so that it opens fast.

    Writes nothing if the version has a complete checkpoint. Rows and versions do not change.
    """
    report = open_for_command(table, storage_options).checkpoint(version=version)
    print_report(report, checkpoint_screen, as_json=as_json)


def checkpoint_screen(report: CheckpointReport) -> Iterable[RenderableType]:
    """Show what was written, in one line."""
    if report.outcome == "nothing_to_do":
        yield Text(f"nothing to do: version {report.version:,} has a complete checkpoint")
        return
    yield Text(describe_checkpoint(report))


def describe_checkpoint(report: CheckpointReport) -> str:
    """Describe the checkpoint that was written."""
    files = format_count(len(report.files), "file")
    entries = "entry" if report.action_count == 1 else "entries"
    return (
        f"checkpoint of version {report.version:,} written: {report.action_count:,} {entries} in "
        f"{files}, {format_bytes(report.bytes)}, {report.kind}"
    )
