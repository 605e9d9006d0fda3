"""The command `lakehand`: parses, runs one verb, and turns errors into words and exit codes."""

from __future__ import annotations

import logging
import os
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

_INTERRUPTED = 130
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
    again), 4 proof failed (nothing was changed), 5 unhealthy.
    """


for _command in COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Run the command line of this process and end it."""
    sys.exit(run(sys.argv[1:]))


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
    except (KeyboardInterrupt, click.Abort):
        print_error(_STOPPED, as_json=as_json)
        return _INTERRUPTED
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
