"""`lakehand help`: the help of a command, as `--help` prints it."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from lakehand.cli.main import COMMANDS, cli, describe_near


def _complete(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=line)
        for name, line in COMMANDS.items()
        if name.startswith(incomplete)
    ]


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND]...", shell_complete=_complete)
@click.pass_context
def help(context: click.Context, words: tuple[str, ...]) -> None:  # noqa: A001
    """Show the help of COMMAND, for example `compact` or `tables pause`.

    Without COMMAND, all commands are listed.
    """
    command: click.Command = cli
    place = click.Context(cli, info_name="lakehand", **cli.context_settings)
    for word in words:
        inner = command.get_command(place, word) if isinstance(command, click.Group) else None
        if inner is None:
            near = describe_near(word) if command is cli else ""
            raise click.UsageError(f"No such command {' '.join(words)!r}.{near}", ctx=context)
        command = inner
        place = click.Context(command, info_name=word, parent=place)
    click.echo(command.get_help(place))
