"""The command that proposes an order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lakehand.cli.opening import open_for_command
from lakehand.cli.options import setting_option, table_options
from lakehand.cli.output import print_report


@click.command()
@table_options
@click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="SQL that is asked of the table; what is in it often counts often.",
)
@setting_option("--target-file-size", "target_file_bytes", metavar="SIZE")
def advise(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    queries: Path | None,
    **settings: Any,
) -> None:
    """Propose columns and a curve to cluster TABLE by. Reads only.

    Every proposal is tried on a sample of the rows, cut into as many files as the table would have:
    it comes with the share of the files that the queries would skip. Without a file of queries a
    fixed set of questions to all columns is asked.
    """
    from lakehand.cli.screens.advice import advice_screen

    opened = open_for_command(table, storage_options)
    text = None if queries is None else queries.read_text()
    advice = opened.advise(queries=text, **settings)
    print_report(advice, advice_screen, as_json=as_json)
