"""Pages, help texts and docstrings of the public API use the terms of the field."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import lakehand
from lakehand.cli.main import COMMANDS, cli
from lakehand.settings import SETTINGS
from support.prose import PHRASES, find_phrases, message_strings, prose_of, source_prose

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
#: Decisions are records of their time.
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if page.parent.name != "decisions"
)
#: Modules whose docstrings and comments use the terms of the field.
SOURCES = sorted((ROOT / "src" / "lakehand").rglob("*.py"))
#: Where a phrase of the list has its ordinary meaning: the text, and the phrase.
ALLOWED: set[tuple[str, str]] = {
    ("src/lakehand/formats/delta/checkpoints/checkpoint_rows.py", "texts"),  # a column in SQL
}


def _page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _advice(where: str, text: str, line: int | None = None) -> list[str]:
    """Say for each phrase where it is, what to write instead, and why."""
    return [
        f"{where}{f':{line + one.line - 1}' if line else ''}: {one.words!r}: better:"
        f" {one.phrase.better} ({one.phrase.reason})"
        for one in find_phrases(text)
        if (where, one.words) not in ALLOWED
    ]


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_a_page_uses_the_terms_of_the_field(page):
    found = _advice(_page_name(page), prose_of(page.read_text()), line=1)
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help_of_a_command_uses_the_terms_of_the_field(name):
    command = cli.get_command(click.Context(cli), name) if name else cli
    parts = command.commands.values() if name and isinstance(command, click.Group) else ()
    texts = [COMMANDS.get(name)]
    for one in (command, *parts):
        texts += [one.help, *(getattr(p, "help", "") for p in one.params)]
    found = [line for text in texts for line in _advice(f"lakehand {name}", text or "")]
    assert found == [], "\n".join(found)


def test_the_help_of_every_setting_uses_the_terms_of_the_field():
    found = [line for one in SETTINGS for line in _advice(f"setting {one.name}", one.help)]
    assert found == [], "\n".join(found)


def _public() -> Iterator[object]:
    for name in lakehand.__all__:
        value = getattr(lakehand, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield value
        if inspect.isclass(value):
            yield from (one for one in vars(value).values() if _is_public_method(one))


def _is_public_method(value: object) -> bool:
    return inspect.isfunction(value) and not value.__name__.startswith("_")


def _docstring_line(value: object) -> tuple[str, int]:
    """Return where the docstring of something public begins."""
    lines, first = inspect.getsourcelines(value)
    opening = next((i for i, line in enumerate(lines) if '"""' in line), 0)
    return Path(inspect.getsourcefile(value)).relative_to(ROOT).as_posix(), first + opening


def test_docstrings_of_the_public_api_use_the_terms_of_the_field():
    found = [
        line
        for value in _public()
        if value.__doc__
        for line in _advice(_docstring_line(value)[0], value.__doc__, _docstring_line(value)[1])
    ]
    assert found == [], "\n".join(found)


def test_docstrings_and_comments_of_the_source_use_the_terms_of_the_field():
    found = [
        line
        for module in SOURCES
        for line in _advice(_page_name(module), source_prose(module.read_text()), line=1)
    ]
    assert found == [], "\n".join(found)


def test_messages_of_the_source_use_the_terms_of_the_field():
    found = [
        advice
        for module in SOURCES
        for line, text in message_strings(module.read_text())
        for advice in _advice(_page_name(module), text, line=line)
    ]
    assert found == [], "\n".join(found)


def test_messages_are_strings_with_spaces_and_not_docstrings():
    source = '"""Done\n    anew."""\nraise Error(f"{x} is done", hint="try " "anew", code="anew")\n'
    assert message_strings(source) == [(3, "try anew"), (3, "{} is done")]


def test_phrases_are_found_in_docstrings_and_comments_and_not_in_code():
    source = 'def f():\n    """Read what is\n    there."""\n    aside = "x aside"  # done anew\n'
    found = [(one.line, one.words) for one in find_phrases(source_prose(source))]
    assert found == [(4, "anew"), (2, "what is there")]


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.example)
def test_every_phrase_of_the_list_is_found(phrase):
    assert phrase in [one.phrase for one in find_phrases(f"lakehand: {phrase.example}.")]


def test_a_phrase_is_found_with_its_line_across_a_line_break_and_not_in_code():
    page = prose_of("Rows,\n`set aside`,\nare read anew: a line a\ntable.\n```sh\nx aside\n```\n")
    found = [(one.line, one.words) for one in find_phrases(page)]
    assert found == [(3, "line a table"), (3, "anew")]


@pytest.mark.parametrize(
    "text",
    [
        "the error text, in order to retry in order of size, once a day",
        "rows that come from a stream; is there a row that a file holds?",
        "files with so many deleted rows that they are rewritten",
        "as it is written in the log, and as they are read; a file of a table",
    ],
)
def test_ordinary_english_is_left_alone(text):
    assert [one.words for one in find_phrases(text)] == []
