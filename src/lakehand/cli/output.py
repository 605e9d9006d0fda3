"""Output of the command: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rich.console import RenderableType


class Report(Protocol):
    """The report of an operation."""

    def to_json(self) -> dict[str, Any]: ...


_R = TypeVar("_R", bound=Report)

#: Width of output to a file or a pipe.
_PLAIN_WIDTH = 100
#: Width of lists there: wider than any line.
_UNFOLDED = 10_000


def print_report(
    report: _R, screen: Callable[[_R], Iterable[RenderableType]], *, as_json: bool
) -> None:
    """Print a report as JSON or as a screen."""
    if as_json:
        print_document(report.to_json())
    else:
        print_screen(*screen(report))


def print_list(*parts: RenderableType) -> None:
    """Print like `print_screen`; lines to a file or a pipe are not wrapped, and can be searched."""
    print_screen(*parts, plain_width=_UNFOLDED)


def print_screen(*parts: RenderableType, plain_width: int = _PLAIN_WIDTH) -> None:
    """Print on stdout: with colours on a terminal, as plain lines otherwise."""
    if sys.stdout.isatty():
        Console(highlight=False).print(*parts, sep="\n")
        return
    page = StringIO()
    Console(file=page, width=plain_width, highlight=False).print(*parts, sep="\n")
    print_lines(line.rstrip() for line in page.getvalue().splitlines())


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def print_document(
    document: Mapping[str, Any],
    *,
    records: tuple[str, Iterable[Mapping[str, Any]]] | None = None,
) -> None:
    """Print one JSON document; the entries of the last member, `records`, are streamed."""
    text = json.dumps(document, indent=2, default=str)
    if records is None:
        click.echo(text)
        return
    name, entries = records
    click.echo(text.removesuffix("\n}") + f",\n  {json.dumps(name)}: [", nl=False)
    separator = "\n    "
    for entry in entries:
        click.echo(separator + json.dumps(entry, default=str), nl=False)
        separator = ",\n    "
    click.echo("\n  ]\n}")


def print_error(error: Mapping[str, Any], *, as_json: bool) -> None:
    """Print an error as text on stderr, and as JSON on stdout if requested."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error["message"]))
    if error.get("hint"):
        console.print(Text.assemble(("hint: ", "bold cyan"), error["hint"]))
    if as_json:
        print_document({"error": error})
