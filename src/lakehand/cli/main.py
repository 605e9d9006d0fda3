"""The command `lakehand`: parses arguments, runs one operation, and maps errors to exit codes."""

from __future__ import annotations

import difflib
import gc
import importlib
import logging
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

import click

from lakehand._version import __version__
from lakehand.cli.output import print_error
from lakehand.cli.shared_options import logging_options
from lakehand.errors import EXIT_FAILED, EXIT_USAGE, LakehandError, describe_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Added to the number of a signal that ends a command, as in shells.
_SIGNALLED = 128
_STOPPED = {
    "code": "INTERRUPTED",
    "message": "interrupted",
    "hint": "the table is undamaged: it has what was committed before, and nothing else",
}
_logger = logging.getLogger("lakehand.cli")


#: Every command, in the order of `lakehand --help`, with its help line. A command is a function in
#: the module of the same name, which is imported when it is used.
COMMANDS: Mapping[str, str] = {
    "inspect": "Show the state of a table: files, sizes, health.",
    "health": "Check a table against thresholds, for monitoring.",
    "history": "Show the commits of a table.",
    "changes": "Show what each version of a table changed.",
    "advise": "Recommend columns to cluster a table by.",
    "plan": "Show what compact or cluster would rewrite, and why.",
    "maintain": "Run all maintenance that is due, for schedules.",
    "compact": "Merge small files and drop deleted rows.",
    "cluster": "Co-locate related rows so that queries skip files.",
    "deduplicate": "Keep one row per key.",
    "delete": "Delete the rows that match a condition.",
    "purge": "Erase deleted rows and dropped columns from the files.",
    "statistics": "Compute missing file statistics.",
    "vacuum": "Delete files that no retained version references.",
    "pin": "Protect a version from vacuum, under a name.",
    "verify": "Check a table for damage and its rewrites for lost rows.",
    "repair": "Fix what verify finds; never drops data unless told to.",
    "checkpoint": "Write a checkpoint, so that a table opens fast.",
    "clean-logs": "Delete expired log entries.",
    "restore": "Restore an earlier version of a table.",
    "properties": "Show and change the properties of a table.",
    "serve": "Run the service that maintains all tables.",
    "service": "Configure, watch and pause the service.",
    "tables": "Show and change the tables of the service.",
    "jobs": "Show, request and change the jobs of the service.",
    "workers": "Show and end the workers of the service.",
    "budgets": "Show the daily budgets of the service.",
    "policies": "Check the policies of the service.",
    "sql": "Run SQL statements, or open a shell.",
    "settings": "Show every setting and where its value comes from.",
    "help": "Show the help of a command.",
}


class _LazyGroup(click.Group):
    """Imports a command when it is run; the help overview imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"lakehand.cli.{name}")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where there is none, say which one may be meant."""
        word = args[0]
        is_unknown = word not in COMMANDS and not word.startswith("-")
        if is_unknown and not ctx.resilient_parsing:  # as it is for completion
            raise click.UsageError(f"No such command {word!r}.{describe_near(word)}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def describe_near(word: str) -> str:
    """Return what may be meant by a word that is no command, as a sentence; else nothing."""
    if os.path.isdir(word):  # noqa: PTH112  which is False where a path cannot be
        return f" To inspect a table: lakehand inspect {shlex.quote(word)}"
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="lakehand")
@logging_options
def cli() -> None:
    """Keep Delta Lake and Lance tables fast, small and safe.

    Every rewrite is proved to hold the same rows before it is committed; if the proof fails, the
    table does not change.

    Exit codes: 0 done or nothing to do, 1 failed, 2 bad usage, 3 lost to a concurrent writer
    (retry), 4 proof failed (nothing changed), 5 unhealthy or damaged, 128 + n stopped by signal n
    (Ctrl-C: 130, SIGTERM: 143; uncommitted files are deleted).
    """


class _Stopped(KeyboardInterrupt):
    """A signal that ends a command like Ctrl-C does: a run deletes what it has not committed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command line of this process and end it."""
    # Modules are objects that stay: looking for garbage among them is 7 % of a short command.
    gc.set_threshold(10_000)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # With nohup a command continues when its terminal is closed.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.exit(run(sys.argv[1:]))


def _stop(number: int, _frame: object) -> None:
    # A second signal must not stop the deletion of uncommitted files.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise _Stopped(number)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    as_json = "--json" in arguments
    try:
        return int(cli.main(args=list(arguments), prog_name="lakehand", standalone_mode=False) or 0)
    except click.ClickException as error:
        return _usage_error(error, as_json=as_json)
    except LakehandError as error:
        _logger.debug("The command failed", exc_info=True, extra={"event": "command_failed"})
        print_error(error.to_json(), as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        print_error(_STOPPED, as_json=as_json)
        # click raises its own error from the interrupt.
        cause = error if isinstance(error, _Stopped) else error.__cause__
        return _SIGNALLED + (cause.number if isinstance(cause, _Stopped) else signal.SIGINT)
    except (BrokenPipeError, SystemExit):  # click ends the process where it meets the former
        return _reader_is_gone()
    except Exception as error:
        _logger.debug("The command failed", exc_info=True, extra={"event": "command_failed"})
        print_error(describe_error(error), as_json=as_json)
        return EXIT_FAILED


def _usage_error(error: click.ClickException, *, as_json: bool) -> int:
    error.show(sys.stderr)
    if as_json:
        document = {"code": "USAGE_ERROR", "message": error.format_message()}
        print_error(document, as_json=True)
    return EXIT_USAGE


def _reader_is_gone() -> int:
    # Otherwise Python reports the error again when it flushes stdout at exit, and DuckDB lists what
    # a stream of rows that ended early still holds.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return EXIT_FAILED
