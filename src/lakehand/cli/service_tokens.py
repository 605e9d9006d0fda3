"""`lakehand service token`: who may use the HTTP server of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_list, print_screen
from lakehand.cli.service_options import (
    CommandGroup,
    duration_option,
    listing,
    open_client,
    service_options,
)
from lakehand.model.quantities import format_ago
from lakehand.service.job_states import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.service.job_states import AccessRole
    from lakehand.service.store.token_registry import AccessToken

_EMPTY = "There are no tokens.\n  lakehand service token create NAME    creates one"


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, show and revoke tokens of the HTTP server.

    A viewer may read, an operator may also change jobs and tables, an admin may do everything.
    """


@token.command("create")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="What the token allows.",
)
@duration_option("How long it is valid, such as 90d. Default: until it is revoked.")
@service_options
def create_token(
    name: str,
    role: AccessRole,
    duration: timedelta | None,
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Create a token and print it. It cannot be printed again: only its hash is stored."""
    with open_client(config, store, create=True) as client:
        created, secret = client.tokens.create(name, role, duration=duration)
    if as_json:
        print_document({**created.to_json(), "secret": secret})
    else:
        print_screen(Text(secret))


@token.command("list")
@service_options
def list_tokens(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """List the tokens by name. The tokens themselves are not stored."""
    with open_client(config, store) as client:
        found, now = client.tokens.list(), client.now()
    if as_json:
        print_document({"tokens": [one.to_json() for one in found]})
    elif not found:
        print_screen(Text(_EMPTY))
    else:
        print_list(*tokens_screen(found, now))


def tokens_screen(found: Sequence[AccessToken], now: float) -> Iterable[RenderableType]:
    """Show tokens, one per line."""
    grid = listing("name", "role", "created", "by", "state", fold=("name", "by"))
    for one in found:
        state = "valid"
        if one.revoked_at is not None:
            state = f"revoked {format_ago(one.revoked_at, now)}"
        elif one.expires_at is not None:
            word = "expired" if one.expires_at <= now else "expires"
            state = f"{word} {format_ago(one.expires_at, now)}"
        created = format_ago(one.created_at, now)
        grid.add_row(one.name, one.role, created, one.created_by or "-", state)
    yield grid


@token.command("revoke")
@click.argument("name")
@service_options
def revoke_token(name: str, config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Revoke a token. It is invalid within two seconds."""
    with open_client(config, store) as client:
        revoked = client.tokens.revoke(name)
    if as_json:
        print_document(revoked.to_json())
    else:
        print_screen(Text(f"{name} is revoked"))
