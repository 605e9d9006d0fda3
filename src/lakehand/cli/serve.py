"""`lakehand serve`: maintain all tables, until a signal ends it."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lakehand.cli.service_options import config_option
from lakehand.cli.shared_options import logging_options
from lakehand.errors import NotInstalledError, ValidationError
from lakehand.observe import configure_logging
from lakehand.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakehand.service.config import ServiceConfig
    from lakehand.service.serve import MakeServer


@click.command()
@click.argument("directories", nargs=-1, metavar="[DIRECTORY]...")
@config_option
@click.option(
    "--roles",
    metavar="ROLES",
    help="What this process does: one or several of web, scheduler, worker. Default: all of them.",
)
@click.option("--store", metavar="URL", help="Job store to use instead of the one in the file.")
@click.option(
    "--max-concurrent-jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of concurrent jobs of this process, instead of the one in the file.",
)
@logging_options
def serve(
    directories: tuple[str, ...],
    config: Path | None,
    roles: str | None,
    store: str | None,
    max_concurrent_jobs: int | None,
) -> int:
    """Run the service: find tables and run the maintenance that is due, until a signal ends it.

    Tables are found in each DIRECTORY (a path or URL) and in the sources of the configuration file,
    which `lakehand service init` writes. SIGTERM and Ctrl-C let running jobs commit what is proved;
    a second one ends them at once, and they are queued again. SIGHUP reads the file again.
    """
    _log_to_screen()
    try:
        from lakehand.service.serve import ROLES, Service, parse_roles, run_service
    except ModuleNotFoundError as error:
        message = f"the service needs the package {error.name}"
        raise NotInstalledError(message, hint='pip install "lakehand[service]"') from error

    def load() -> ServiceConfig:
        return _load(config, directories, store, max_concurrent_jobs)

    web = _find_web(is_required=roles is not None and "web" in roles)
    chosen = ROLES if roles is None else parse_roles(roles)
    return run_service(Service(load(), roles=chosen, web=web), load)


def _find_web(*, is_required: bool) -> MakeServer | None:
    """Return what makes the HTTP server; None if its packages are not installed."""
    try:
        from lakehand.web.server import WebServer
    except ModuleNotFoundError as error:
        hint = 'pip install "lakehand[web]"'
        if is_required:
            message = f"the web role needs the package {error.name}"
            raise NotInstalledError(message, hint=hint) from error
        message = "no notifications are taken: %s installs what that needs"
        logging.getLogger("lakehand.cli").info(message, hint)
        return None
    return WebServer


def _log_to_screen() -> None:
    """Show what happens, unless another level was chosen."""
    chosen = Settings(environment=os.environ)
    if chosen.sources["log_level"] == "default" and not _has_level_option():
        configure_logging(level="info", form=chosen.log_format, is_service=True)


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
    from lakehand.service.config import ServiceConfig, SourceSection, find_config, load_config

    file = find_config(file, is_required=False)
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
        message = "no tables to maintain: no lakehand.toml in this directory, and no DIRECTORY"
        hint = "lakehand service init writes a configuration file; or: lakehand serve DIRECTORY"
        raise ValidationError(message, hint=hint)
    return replace(config, service=service, sources=sources)
