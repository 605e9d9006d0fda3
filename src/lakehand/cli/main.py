"""The command `lakehand`: parses, runs one verb, and turns errors into words and exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from lakehand import __version__
from lakehand.cli.commands import COMMANDS
from lakehand.cli.options import logging_options
from lakehand.cli.output import print_error
from lakehand.errors import EXIT_FAILED, EXIT_USAGE, LakehandError, describe_error

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Added to the number of a signal that ends a command, as shells do.
_SIGNALLED = 128
_STOPPED = {
    "code": "INTERRUPTED",
    "message": "interrupted",
    "hint": "the table is whole: what was committed stays, and nothing else is in it",
}
_logger = logging.getLogger("lakehand.cli")


class _InOrder(click.Group):
    """Lists commands as they were added: those that only read come first."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group(
    cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="lakehand")
@logging_options
def cli() -> None:
    """Keep Delta Lake and Lance tables fast, small and safe.

    Every rewrite is proved to hold the same rows before it is committed; if the proof fails, the
    table is left as it was.

    Exit codes: 0 done or nothing to do, 1 failed, 2 bad usage, 3 lost to a concurrent writer (try
    again), 4 proof failed (nothing was changed), 5 unhealthy, 128 + n stopped by signal n (Ctrl-C:
    130, SIGTERM: 143), with what was not committed deleted.
    """


for _command in COMMANDS:
    cli.add_command(_command)


class _Stopped(KeyboardInterrupt):
    """A signal that ends a command as Ctrl-C does: a run deletes what it has not committed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command line of this process and end it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup a command goes on when its terminal is closed.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    sys.exit(run(sys.argv[1:]))


def _stop(number: int, _frame: object) -> None:
    # What is sent again does not end the deletion of what the run has written.
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
    except BrokenPipeError:
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
    # Python would complain once more when it flushes stdout at the end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED
