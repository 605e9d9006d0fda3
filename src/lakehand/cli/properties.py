"""`lakehand properties`: show and change the properties of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_list, print_report
from lakehand.cli.shared_options import dry_run_option, open_for_command, table_options
from lakehand.model.order import column_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from lakehand.model.reports import PropertiesReport

_DONE = {"committed": "committed as version {}", "dry_run": "dry run on version {}"}


@click.group()
def properties() -> None:
    """Show and change the properties, features and clustering columns of a table.

    Every change is one commit. It upgrades the table's protocol where Delta asks for it.
    """


@properties.command("list")
@table_options
def list_properties(table: str, storage_options: dict[str, str], as_json: bool) -> None:  # noqa: FBT001
    """Show the properties of TABLE."""
    snapshot = open_for_command(table, storage_options).snapshot()
    if as_json:
        print_document(
            {
                "table": snapshot.table,
                "version": snapshot.version,
                "properties": dict(sorted(snapshot.properties.items())),
            }
        )
    else:
        print_list(*properties_screen(snapshot.properties))


@properties.command("set")
@table_options
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
@dry_run_option
def set_properties(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    pairs: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001
) -> None:
    """Set properties of TABLE."""
    opened = open_for_command(table, storage_options)
    report = opened.set_properties(_read_pairs(pairs), dry_run=dry_run)
    print_report(report, change_screen, as_json=as_json)


@properties.command("unset")
@table_options
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="Ignore properties that are not set.")
@dry_run_option
def unset_properties(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    names: tuple[str, ...],
    if_exists: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
) -> None:
    """Remove properties of TABLE, so that their defaults apply again."""
    opened = open_for_command(table, storage_options)
    report = opened.unset_properties(names, if_exists=if_exists, dry_run=dry_run)
    print_report(report, change_screen, as_json=as_json)


@properties.command("enable")
@table_options
@click.argument("feature")
@dry_run_option
def enable_feature(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    feature: str,
    dry_run: bool,  # noqa: FBT001
) -> None:
    """Add FEATURE, and the features it depends on, to the protocol of TABLE."""
    report = open_for_command(table, storage_options).enable_feature(feature, dry_run=dry_run)
    print_report(report, change_screen, as_json=as_json)


@properties.command("cluster-by")
@table_options
@click.argument("columns", required=False)
@click.option("--none", "no_columns", is_flag=True, help="Declare that there are none.")
@dry_run_option
def cluster_by(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    columns: str | None,
    no_columns: bool,  # noqa: FBT001
    dry_run: bool,  # noqa: FBT001
) -> None:
    """Declare COLUMNS, separated by commas, as the clustering columns of TABLE."""
    if no_columns == bool(columns):
        raise click.UsageError("give COLUMNS or --none")
    opened = open_for_command(table, storage_options)
    report = opened.cluster_by(column_names(columns or ()), dry_run=dry_run)
    print_report(report, change_screen, as_json=as_json)


def _read_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    read = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise click.BadParameter(f"{pair!r}: write it as NAME=VALUE")
        read[name] = value
    return read


def properties_screen(found: Mapping[str, str]) -> Iterable[RenderableType]:
    """Show one line per property."""
    if not found:
        yield Text("no properties")
    for name, value in sorted(found.items()):
        yield Text(f"{name}={value}")


def change_screen(report: PropertiesReport) -> Iterable[RenderableType]:
    """Show what changed, one line each."""
    if report.outcome == "nothing_to_do":
        yield Text(f"nothing to do: version {report.version:,} is like that already")
        return
    yield Text(_DONE[report.outcome].format(f"{report.version:,}"))
    for name, value in report.after.items():
        was = report.before[name]
        old = "not set" if was is None else was
        yield Text(f"{name}: {old} -> {'not set' if value is None else value}")
    if report.features_added:
        yield Text(f"features added: {', '.join(report.features_added)}")
    if report.clustering_columns is not None:
        yield Text(f"clustering columns: {', '.join(report.clustering_columns) or 'none'}")
