"""The shell of `lakehand sql`: statements of several lines, history and completion.

It uses Python's readline, which every terminal user knows from other shells, and needs no further
package. Without readline (some builds of Python) there is no history and no completion.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakehand.cli.output import print_error
from lakehand.cli.sql import print_result, run_statement
from lakehand.errors import LakehandError, SqlError, describe_error
from lakehand.settings import SETTINGS
from lakehand.sql.grammar import KEYWORDS
from lakehand.sql.lexer import split_statements
from lakehand.sql.system_rows import SYSTEM_TABLES, TABLE_FUNCTIONS

try:
    import readline
except ImportError:  # pragma: no cover  builds of Python without it
    readline = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.sql.sql_session import SqlSession

_PROMPT, _CONTINUED = "lakehand> ", "       -> "
_HISTORY_LINES = 5_000
#: What is not kept in the history: it may be a secret.
_SECRET = "storage."  # noqa: S105  the prefix of options
_HELP = r"""Statements end with a semicolon and may have several lines.
  COMPACT TABLE, OPTIMIZE, VACUUM, PURGE TABLE, CHECKPOINT TABLE, VERIFY TABLE, REPAIR TABLE,
  MAINTAIN TABLE, DEDUPLICATE TABLE, RESTORE TABLE, DESCRIBE HISTORY, DESCRIBE DETAIL,
  ALTER TABLE, SHOW, EXPLAIN, CANCEL JOB, RETRY JOB, SELECT ... FROM system.<table>
A table is a path, delta.`url`, or the name of a registered table.
  \q quit   \d list system tables   \x show rows vertically, or not   \? this help"""


class Shell:
    """Reads statements from a terminal and prints their results."""

    def __init__(
        self, session: SqlSession, form: str, *, read: Callable[[str], str] = input
    ) -> None:
        self._session = session
        self._form = form
        self._read = read
        self._is_vertical = False

    def run(self) -> int:
        """Run statements until the user quits."""
        self._load_history()
        click.echo(r"lakehand SQL: statements end with ;   \? for help, \q to quit", err=True)
        try:
            for statement in self._statements():
                self._run_one(statement)
        finally:
            self._save_history()
        return 0

    def _statements(self) -> Iterator[str]:
        """Yield whole statements; a command of the shell is a line that begins with a backslash."""
        waiting = ""
        while True:
            try:
                line = self._read(_CONTINUED if waiting else _PROMPT)
            except EOFError:
                click.echo("", err=True)
                return
            except KeyboardInterrupt:
                click.echo("^C", err=True)
                waiting = ""
                continue
            if not waiting and line.strip().startswith("\\"):
                if not self._command(line.strip()):
                    return
                continue
            waiting = f"{waiting}\n{line}" if waiting else line
            statements, waiting = split_ended(waiting)
            yield from statements

    def _command(self, line: str) -> bool:
        """Run a command of the shell; return whether the shell goes on."""
        if line in {r"\q", r"\quit"}:
            return False
        if line == r"\x":
            self._is_vertical = not self._is_vertical
        elif line == r"\d":
            names = [*SYSTEM_TABLES, *(f"{name}('t')" for name in TABLE_FUNCTIONS)]
            click.echo("\n".join(f"system.{name}" for name in names))
        elif line in {r"\?", r"\h", r"\help"}:
            click.echo(_HELP)
        else:
            click.echo(rf"there is no {line}; \? lists what there is", err=True)
        return True

    def _run_one(self, statement: str) -> None:
        """Run a statement and print its result; errors do not end the shell."""
        if _SECRET in statement.lower():
            _forget_last_lines(statement.count("\n") + 1)
        try:
            result = run_statement(self._session, statement)
            print_result(result, self._form, is_vertical=self._is_vertical)
        except LakehandError as error:
            print_error(error.to_json(), as_json=False)
        except KeyboardInterrupt:
            click.echo("interrupted; a job of the service continues", err=True)
        except Exception as error:  # noqa: BLE001  a bug must not end the shell
            print_error(describe_error(error), as_json=False)

    # -- history and completion ---------------------------------------------------------------

    def _load_history(self) -> None:
        if readline is None:
            return
        with suppress(OSError):
            readline.read_history_file(history_file())
        readline.set_history_length(_HISTORY_LINES)
        readline.set_completer_delims(" \t\n(),;=")
        readline.set_completer(Completer(self._session).complete)
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")

    def _save_history(self) -> None:
        if readline is None:
            return
        file = history_file()
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)


def split_ended(text: str) -> tuple[list[str], str]:
    """Return the statements that have ended, and what has not."""
    try:
        found = split_statements(text, with_rest=True)
    except SqlError:  # A string or comment that has not ended.
        return [], text
    return found[:-1], found[-1]


def history_file() -> Path:
    """Return where the history is kept: in the user's directory for state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lakehand" / "sql_history"


def _forget_last_lines(count: int) -> None:
    if readline is None:
        return
    for _ in range(count):
        length = readline.get_current_history_length()
        if length and sys.stdin.isatty():
            readline.remove_history_item(length - 1)


class Completer:
    """Completes keywords, system tables, settings and the names of registered tables."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._tables: list[str] | None = None
        self._found: list[str] = []

    def complete(self, text: str, state: int) -> str | None:
        """Return the completion number `state` of a word, as readline asks for it."""
        if state == 0:
            self._found = self.candidates(text)
        return self._found[state] if state < len(self._found) else None

    def candidates(self, text: str) -> list[str]:
        """Return what a word may become."""
        wanted = text.lower()
        system = [f"system.{name}" for name in SYSTEM_TABLES]
        system += [f"system.{name}(" for name in TABLE_FUNCTIONS]
        keywords = [word if text[:1].isupper() or not text else word.lower() for word in KEYWORDS]
        names: list[Any] = [*keywords, *system, *(one.name for one in SETTINGS), *self._names()]
        return sorted({name for name in names if name.lower().startswith(wanted)})

    def _names(self) -> list[str]:
        if self._tables is None:
            self._tables = []
            if self._session.client is not None:
                with suppress(LakehandError):
                    entries = self._session.client.tables.list(limit=_HISTORY_LINES)
                    self._tables = [entry.table.name for entry in entries if entry.table.name]
        return self._tables
