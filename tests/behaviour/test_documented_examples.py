"""What the pages tell a reader to type works."""

from __future__ import annotations

import os
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakehand.cli.main import run
from support.small_tables import make_table

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    "README.md",
    "docs/getting-started.md",
    "docs/guides/change-feed.md",
    "docs/guides/compaction.md",
    "docs/guides/deduplication.md",
    "docs/guides/schema-evolution.md",
    "docs/guides/hot-tier.md",
    "docs/guides/maintenance.md",
    "docs/guides/notifications.md",
    "docs/guides/observing.md",
    "docs/guides/properties.md",
    "docs/guides/sql.md",
    "docs/guides/statistics.md",
    "docs/guides/testing.md",
    "docs/guides/upserts.md",
    "docs/guides/writing.md",
    "docs/concepts/snapshots.md",
)
PLACES = re.compile(r"s3://lake/events|path/to/table")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with enough versions, whose commits are old enough for every example."""
    path = make_table(tmp_path_factory.mktemp("documented") / "events", commits=14)
    then = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for commit in (path / "_delta_log").iterdir():
        os.utime(commit, (then, then))
    return path


@pytest.fixture(autouse=True)
def without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    monkeypatch.chdir(tmp_path)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def commands(page):
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    found = [line.removeprefix("$ ") for line in lines if line.startswith("$ lakehand ")]
    return [line for line in found if PLACES.search(line)]


# In their order: one command unsets what another has set.
@pytest.mark.xdist_group("documented commands")
@pytest.mark.parametrize("command", [line for page in PAGES for line in commands(page)])
def test_every_command_works(command, table, capsys):
    words = shlex.split(PLACES.sub(str(table), command), comments=True)
    assert run(words[1:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES)
def test_every_piece_of_python_works(page, table):
    pieces = blocks(page, "python")
    source = "import lakehand\ntable = lakehand.open_table('path/to/table')\n" + "\n".join(pieces)
    names = {}
    exec(compile(PLACES.sub(str(table), source), page, "exec"), names)
    assert names["table"].snapshot().version >= 13
