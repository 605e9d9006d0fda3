"""`lakehand budgets`: what may be spent on a day, and what was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_list, print_screen
from lakehand.cli.service_options import format_seconds, listing, open_client, service_options
from lakehand.model.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.service.store.budgets import Budget


@click.command()
@click.option(
    "--day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Day, such as 2026-01-31. Default: today, in the time zone of the service.",
)
@service_options
def budgets(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    day: click.DateTime | None,
) -> None:
    """Show what jobs may spend on a day, what they have reserved, and what they have spent."""
    named = None if day is None else str(day)[:10]
    with open_client(config, store) as client:
        found = client.budgets(named)
    if as_json:
        print_document({"budgets": [budget.to_json() for budget in found]})
    elif not found:
        print_screen(Text("No budgets for this day: only pools limit what runs."))
    else:
        print_list(*budgets_screen(found))


def budgets_screen(found: Sequence[Budget]) -> Iterable[RenderableType]:
    """Show one line per budget."""
    amounts = ("allowed", "spent", "reserved", "left")
    grid = listing("scope", "unit", *amounts, right=amounts, fold=("scope",))
    for budget in found:
        values = (budget.allowed, budget.spent, budget.reserved, budget.left)
        formatted = (_format_amount(value, budget.unit) for value in values)
        grid.add_row(Text(budget.scope), budget.unit.replace("_", " "), *formatted)
    yield grid


def _format_amount(amount: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(amount)
    return format_seconds(amount) if unit == "core_seconds" else f"{amount:,.2f}"
