"""`lakehand serve`: look after all tables, until a signal ends it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakehand.cli.shared_options import logging_options
from lakehand.errors import NotInstalledError, ValidationError
from lakehand.observe import configure_logging
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.service.config import ServiceConfig


@click.command()
@click.argument("directories", nargs=-1, metavar="[DIRECTORY]...")
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Configuration file. Default: lakehand.toml in this directory, if there is one.",
)
@click.option(
    "--roles",
    default="scheduler,worker",
    show_default=True,
    metavar="ROLES",
    help="What this process does: one or several of scheduler, worker.",
)
@click.option("--store", metavar="URL", help="Job store, above the one of the file.")
@click.option(
    "--max-concurrent-jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs that this process runs at once, above the number of the file.",
)
@logging_options
def serve(
    directories: tuple[str, ...],
    config_file: Path | None,
    roles: str,
    store: str | None,
    max_concurrent_jobs: int | None,
) -> int:
    """Look after all tables: find them, maintain what is due, until a signal ends it.

    Tables are found in each DIRECTORY (a path or URL) and in the sources of the configuration file,
    which `lakehand service init` writes. SIGTERM and Ctrl-C let running jobs commit what is proved;
    a second one ends them at once, and they are queued again. SIGHUP reads the file again.
    """
    _log_to_screen()
    try:
        from lakehand.service.serve import Service, parse_roles, run_service
    except ModuleNotFoundError as error:
        message = f"the service needs the package {error.name}"
        raise NotInstalledError(message, hint='pip install "lakehand[service]"') from error

    def load() -> ServiceConfig:
        return _load(config_file, directories, store, max_concurrent_jobs)

    return run_service(Service(load(), roles=parse_roles(roles)), load)


def _log_to_screen() -> None:
    """Show what happens, unless another level was chosen."""
    chosen = Settings(environment=os.environ)
    if chosen.sources["log_level"] == "default" and not _has_level_option():
        configure_logging(level="info", form=chosen.log_format, with_time=True)


def _has_level_option() -> bool:
    context = click.get_current_context()
    return "log_level" in context.meta.get("lakehand.logging", {})


def _load(
    file: Path | None,
    directories: Sequence[str],
    store: str | None,
    max_concurrent_jobs: int | None,
) -> ServiceConfig:
    """Return the configuration of the file and of the command line."""
    from lakehand.service.config import CONFIG_NAME, ServiceConfig, SourceSection, load_config

    if file is None and Path(CONFIG_NAME).is_file():
        file = Path(CONFIG_NAME)
    config = ServiceConfig() if file is None else load_config(file)
    service = config.service
    if store is not None:
        service = replace(service, store=store)
    if max_concurrent_jobs is not None:
        service = replace(service, max_concurrent_jobs=max_concurrent_jobs)
    sources = config.sources
    if directories:
        named = SourceSection(name="command line", include=tuple(directories))
        sources = (*sources, named)
    if file is None and not sources:
        message = "nothing to look after: there is no lakehand.toml here, and no DIRECTORY is named"
        hint = "lakehand service init writes a configuration file; or: lakehand serve DIRECTORY"
        raise ValidationError(message, hint=hint)
    return replace(config, service=service, sources=sources)
