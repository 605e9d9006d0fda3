"""The commands: thin, each one verb of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.cli.commands.advising import advise
from lakehand.cli.commands.health import health
from lakehand.cli.commands.log import checkpoint
from lakehand.cli.commands.maintaining import maintain
from lakehand.cli.commands.proving import statistics, verify
from lakehand.cli.commands.purging import purge
from lakehand.cli.commands.reading import history, inspect, settings
from lakehand.cli.commands.repairing import clean_logs, repair, restore
from lakehand.cli.commands.retention import pin, vacuum
from lakehand.cli.commands.rewriting import cluster, compact, plan
from lakehand.cli.commands.rows import deduplicate, delete

if TYPE_CHECKING:
    import click

__all__ = ["COMMANDS"]

#: In the order in which `lakehand --help` lists them.
COMMANDS: tuple[click.Command, ...] = (
    inspect,
    health,
    history,
    advise,
    plan,
    maintain,
    compact,
    cluster,
    deduplicate,
    delete,
    purge,
    statistics,
    vacuum,
    pin,
    verify,
    repair,
    checkpoint,
    clean_logs,
    restore,
    settings,
)
