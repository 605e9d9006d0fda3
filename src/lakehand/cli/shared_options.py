"""Options that several commands share, and the table that they open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.shell_completion import CompletionItem

from lakehand.model.order import CURVE_SYNONYMS, Curve
from lakehand.observe import configure_logging
from lakehand.settings import Settings, find_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from click.decorators import FC

    from lakehand.planning.plan import Plan
    from lakehand.settings import Setting
    from lakehand.table import Table

_LOGGING = "lakehand.logging"


def complete_table(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a table as a directory; the shell lists them."""
    return [] if "://" in incomplete else [CompletionItem(incomplete, type="dir")]


table_argument = click.argument("table", metavar="TABLE", shell_complete=complete_table)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
)
version_option = click.option(
    "--version", type=click.IntRange(min=0), metavar="N", help="Use this version."
)
timestamp_option = click.option(
    "--timestamp", metavar="T", help="Use the version at this time (ISO 8601; UTC if no zone)."
)

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change; write nothing."
)
allow_short_retention_option = click.option(
    "--allow-short-retention",
    is_flag=True,
    default=None,
    help=find_setting("allow_short_retention").help,
)
update_indices_option = click.option(
    "--update-indices",
    is_flag=True,
    default=None,
    help="Also add new rows to the indices of a Lance table.",
)


def setting_option(flag: str, setting: str, **attributes: Any) -> Callable[[FC], FC]:
    """Create an option for a setting, with its parser, checks and help."""
    entry = find_setting(setting)
    attributes = {"help": entry.help, "callback": _reader(entry, flag), **attributes}
    return click.option(flag, entry.name, **attributes)


def _reader(setting: Setting, flag: str) -> Callable[[Any, Any, Any], Any]:
    def read(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        return None if value is None else setting.read(value, flag)

    return read


def _read_storage_options(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator):
            # The value may be a secret, so it is not shown.
            raise click.BadParameter("write it as KEY=VALUE")
        options[key] = value
    return options


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_read_storage_options,
    help="Credential or endpoint of the store; never printed. Repeatable. Other users of this"
    " machine can see the command line: pass secrets in the environment.",
)


def _choose_logging(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Apply the option; after the command's name it takes precedence over before it."""
    chosen = context.meta.setdefault(_LOGGING, {})
    if value is not None:
        chosen[parameter.name] = value
    # With an explicit environment, unknown variables are reported later, when logging is
    # configured.
    settings = Settings(chosen, environment=os.environ)
    configure_logging(level=settings.log_level, form=settings.log_format)


def logging_options(command: FC) -> FC:
    """Add `--log-level` and `--log-format`, accepted before and after the command's name."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        callback=_choose_logging,
        expose_value=False,
        help=find_setting("log_level").help,
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        callback=_choose_logging,
        expose_value=False,
        help=find_setting("log_format").help,
    )
    return level(form(command))


def table_options(command: FC) -> FC:
    """Add the options of every command on a table."""
    return table_argument(storage_option(json_option(logging_options(command))))


def engine_options(command: FC) -> FC:
    """Add the options that choose where tasks run."""
    engine = setting_option("--engine", "engine", metavar="[auto|spark|local]")
    master = setting_option("--master", "master", metavar="URL")
    remote = setting_option("--remote", "remote", metavar="URL")
    return engine(master(remote(command)))


#: Settings of a plan, as options of `plan`, `compact` and `cluster`.
_PLANNING_SETTINGS = (
    ("--target-file-size", "target_file_bytes", "SIZE"),
    ("--min-files", "min_files", "N"),
    ("--small-file-ratio", "small_file_ratio", "RATIO"),
    ("--deleted-row-ratio", "deleted_row_ratio", "RATIO"),
    ("--strategy", "strategy", "[greedy|bin-packing|sort-by-size]"),
    ("--max-bytes", "max_bytes_per_run", "SIZE"),
    ("--max-files", "max_files_per_run", "N"),
    ("--max-groups", "max_groups_per_run", "N"),
    ("--quiet-period", "quiet_period", "TIME"),
)


def planning_options(command: FC) -> FC:
    """Add the options that choose which files are rewritten."""
    for flag, setting, metavar in reversed(_PLANNING_SETTINGS):
        command = setting_option(flag, setting, metavar=metavar)(command)
    automatic = click.option(
        "--automatic",
        is_flag=True,
        help="For schedules: require more small files; skip partitions with recent writes.",
    )
    return where_files_option(automatic(command))


where_files_option = click.option(
    "--where",
    metavar="PREDICATE",
    help="Only files whose rows all match this condition, as partition values or statistics show.",
)


def clustering_options(command: FC) -> FC:
    """Add the options that choose columns and curve."""
    by = click.option(
        "--by",
        metavar="COLUMNS",
        default="",
        help="Comma-separated columns. Default: the table's clustering columns.",
    )
    curve = click.option(
        "--curve",
        type=click.Choice((*get_args(Curve), *CURVE_SYNONYMS)),
        metavar="[hilbert|zorder|linear]",
        default="hilbert",
        show_default=True,
        help="Space-filling curve; linear sorts by the first column, then the next.",
    )
    full = click.option("--full", is_flag=True, help="Rewrite all files, including clustered ones.")
    return by(curve(full(command)))


stored_plan_option = click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run this plan, stored by `lakehand plan --output`.",
)


def read_plan(file: Path | None) -> Plan | None:
    """Read the plan of `--plan`."""
    from lakehand.planning.plan import Plan

    return None if file is None else Plan.from_text(file.read_bytes())


prove_option = setting_option("--prove", "prove", metavar="[digest|independent|counts]")


def open_for_command(table: str, storage_options: Mapping[str, str], **settings: Any) -> Table:
    """Open the table of the command line."""
    # `lakehand --help` needs neither Arrow nor DuckDB.
    from lakehand.engine.import_guard import leave_pandas_out
    from lakehand.table import open_table

    leave_pandas_out()
    return open_table(table, storage_options=storage_options, **settings)


def open_for_rewriting(
    table: str, storage_options: Mapping[str, str], *, dry_run: bool, **options: Any
) -> Table:
    """Open a table whose files may be rewritten, while worker processes load their modules."""
    from lakehand.rewrite.prestart import start_rewriter_ahead

    if not dry_run:
        engine = {name: options.get(name) for name in ("engine", "master", "remote")}
        start_rewriter_ahead(Settings(engine), table)
    return open_for_command(table, storage_options)
