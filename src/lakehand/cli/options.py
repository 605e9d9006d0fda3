"""Options that several commands share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lakehand.observe import configure_logging
from lakehand.settings import Settings, find_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC

    from lakehand.settings import Setting

_LOGGING = "lakehand.logging"

table_argument = click.argument("table", metavar="TABLE")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
)
version_option = click.option(
    "--version", type=click.IntRange(min=0), metavar="N", help="Look at this version."
)
timestamp_option = click.option(
    "--timestamp", metavar="T", help="Look at the version of this time (ISO 8601; UTC if no zone)."
)


def setting_option(flag: str, setting: str, **attributes: Any) -> Callable[[FC], FC]:
    """Make an option of a setting: parsed, checked and explained by the table of settings."""
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
            # The text itself may be a secret, so it is not repeated.
            raise click.BadParameter("write it as KEY=VALUE")
        options[key] = value
    return options


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_read_storage_options,
    help="Credential or endpoint of the store; never printed. May be given several times. "
    "Other users of this machine can see a command line: prefer the environment for secrets.",
)


def _choose_logging(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Take what the command says over what came before the command, then apply both."""
    chosen = context.meta.setdefault(_LOGGING, {})
    if value is not None:
        chosen[parameter.name] = value
    # With the environment given, unknown variables are reported later, when there is a log.
    settings = Settings(chosen, environment=os.environ)
    configure_logging(level=settings["log_level"], form=settings["log_format"])


def logging_options(command: FC) -> FC:
    """Add `--log-level` and `--log-format`, which may stand before or after the command's name."""
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
    """Add what every command on a table takes."""
    return table_argument(storage_option(json_option(logging_options(command))))


def engine_options(command: FC) -> FC:
    """Add what says where tasks run."""
    engine = setting_option("--engine", "engine", metavar="[auto|spark|local]")
    master = setting_option("--master", "master", metavar="URL")
    remote = setting_option("--remote", "remote", metavar="URL")
    return engine(master(remote(command)))


#: What decides over a plan, as flags: the same for `plan` and `compact`.
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
    """Add what says which files are rewritten."""
    for flag, setting, metavar in reversed(_PLANNING_SETTINGS):
        command = setting_option(flag, setting, metavar=metavar)(command)
    automatic = click.option(
        "--automatic",
        is_flag=True,
        help="For schedules: wait for more files, and leave partitions alone that are being"
        " written to.",
    )
    where = click.option(
        "--where",
        metavar="PREDICATE",
        help="Only files whose rows all fulfil this condition, which must be decided by partition"
        " values or statistics.",
    )
    return where(automatic(command))
