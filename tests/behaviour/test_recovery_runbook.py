"""The runbook works: every command of it is run against a table with the damage it is about."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lakehand import open_table
from lakehand.cli.main import run
from lakehand.observe.steps import Step
from support import damage
from support.crash import run_and_kill
from support.damage import ids_of, make_whole_table, read_ids

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "recovery.md"
PLACES = re.compile(r"s3://lake/events|path/to/table")
ALL, MOST, OLD = ids_of(0, 1, 2, 3, 4), ids_of(0, 1, 2, 3), ids_of(0, 1, 2)
CHANGED = [i for i in ALL if i != 120]


def compact(path: str) -> None:
    open_table(path, engine="local", min_files=2).compact()


def delete_all_but_one_version(path):
    for version in (0, 1, 2, 3):
        name = damage.data_file(path, version).name
        damage.commit_by_hand(path, {"remove": {"path": name, "dataChange": True}})


def restore_the_wrong_version(path):
    open_table(path).restore(version=1)


def vacuum_too_early(path):
    (path / "stray.parquet").write_bytes(b"needed after all")
    import os

    os.utime(path / "stray.parquet", (0, 0))
    return open_table(path).vacuum().quarantine_id


def die_half_way(path):
    run_and_kill(Step.RUN_COMMITTING, compact, str(path))


def go_too_far(path):
    damage.cut_commit(path)
    return Path(open_table(path).repair(accept_data_loss=True).aside).name


#: What is done to the table before the commands under a heading, and its rows afterwards. The
#: name of whatever the damage returns stands in the place of the page's example.
SECTIONS = {
    "Find out what is wrong": (damage.lose_pointer, ALL),
    "A file is lost or damaged": (damage.lose_file, MOST),
    "A file differs from what was committed": (damage.lose_a_row, CHANGED),
    "A deletion vector is lost or wrong": (damage.lose_vector, ALL),
    "The newest commit is broken": (damage.empty_newest_commit, MOST),
    "A commit in the middle is missing": (damage.lose_commit(3), OLD),
    "Only old history is broken": (damage.lose_commit(1), ALL),
    "A checkpoint is broken": (damage.break_checkpoint, ALL),
    "Spark fails with a ChecksumException": (damage.leave_old_hadoop_sum, ALL),
    "Queries miss rows that exist": (damage.narrow_bounds, ALL),
    "Rows were deleted or overwritten by mistake": (delete_all_but_one_version, MOST),
    "The wrong version was restored": (restore_the_wrong_version, ALL),
    "Vacuum ran too early": (vacuum_too_early, ALL),
    "A run died half-way": (die_half_way, ALL),
    "A repair went too far": (go_too_far, None),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_whole_table(tmp_path_factory.mktemp("runbook") / "table")


@pytest.fixture
def path(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    return shutil.copytree(whole, tmp_path / "table")


def sections():
    """Return the text under each heading."""
    _, *parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands(text):
    """Yield each command of a section with the exit code that the page promises."""
    for line in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
        command, _, note = line.partition(" #")
        code = re.search(r"exit code (\d)", note)
        yield command.strip(), int(code[1]) if code else 0


def execute(command, path, example) -> int:
    told = PLACES.sub(str(path), re.sub(r"20260101T120000-1a2b3c4d|\bID\b", str(example), command))
    words = shlex.split(told)
    if words[0] == "lakehand":
        return run(words[1:])
    return subprocess.run(words, check=False, capture_output=True).returncode


def test_every_heading_with_commands_has_a_damaged_table():
    assert {name for name, text in sections().items() if "```console" in text} == SECTIONS.keys()


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_steps_under_a_heading_do_what_the_page_says(heading, path, capsys):
    break_table, expected = SECTIONS[heading]
    example = break_table(path)
    steps = list(commands(sections()[heading]))
    assert steps
    for command, code in steps:
        assert execute(command, path, example) == code, (command, capsys.readouterr())
    if expected is not None:
        assert read_ids(path) == expected
    else:
        # What was set aside is back: the commit that was cut off, too.
        names = {finding.name for finding in open_table(path).verify(proofs=False).findings}
        assert "corrupt_commit" in names


def test_the_python_of_the_page_names_what_is_wrong(path, capsys):
    damage.lose_file(path)
    pieces = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(PLACES.sub(str(path), "\n".join(pieces)), str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("missing_file part-")
