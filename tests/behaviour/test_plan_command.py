"""`lakehand plan`, and `lakehand compact --plan`, as a person types them."""

from __future__ import annotations

import json

import pytest

from lakehand.cli.main import run
from support.small_tables import fingerprint, make_table, read_sorted


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "events")


@pytest.fixture
def lakehand(capsys):
    """Run the command in this process: exit code, stdout and stderr."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_plan_is_shown_and_nothing_is_written(lakehand, table):
    before = fingerprint(table)

    code, out, _ = lakehand("plan", table)

    assert code == 0
    assert "12 → 2" in out
    assert "region=eu" in out
    assert fingerprint(table) == before


def test_every_file_is_listed_with_its_reason(lakehand, table):
    _, out, _ = lakehand("plan", table, "--files", "--where", "region = 'eu'")
    lines = [line for line in out.splitlines() if line.endswith(".parquet")]

    assert len(lines) == 12
    assert sum(" small " in line for line in lines) == 6
    assert sum(" outside_predicate " in line for line in lines) == 6


def test_the_json_document_is_the_plan_that_compact_takes(lakehand, tmp_path, table):
    rows = read_sorted(table)
    _, out, _ = lakehand("plan", table, "--json", "--files", "--max-groups", "1")
    (tmp_path / "plan.json").write_text(out)
    document = json.loads(out)

    code, said, err = lakehand(
        "compact", table, "--plan", tmp_path / "plan.json", "--engine", "local", "--json"
    )

    assert code == 0, err
    assert len(document["files"]) == 12
    assert document["remaining"] == {
        "groups": 1,
        "files": 6,
        "bytes": sum(f["bytes"] for f in document["files"] if f["reason"] == "later_run"),
    }
    assert json.loads(said)["files_after"] == 7
    assert read_sorted(table).equals(rows)


def test_a_stored_plan_says_how_to_carry_it_out_and_fits_once(lakehand, tmp_path, table):
    file = tmp_path / "plan.json"
    _, out, _ = lakehand("plan", table, "--output", file)
    assert out.endswith(f"\n  lakehand compact {table} --plan {file}\n")

    assert lakehand("compact", table, "--plan", file, "--engine", "local")[0] == 0
    code, _, err = lakehand("compact", table, "--plan", file, "--engine", "local")

    assert code == 3
    assert "12 files of it were removed or changed since" in err
    assert "plan again" in err


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe{}", b"[" * 5_000])
def test_a_file_that_holds_no_plan_is_bad_usage(lakehand, tmp_path, table, content):
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    code, _, err = lakehand("compact", table, "--plan", file)
    assert code == 2
    assert "not a plan" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "region = eu"], "strings are quoted by single quotes"),
        (["--where", "amount > 3"], "may have both matching and other rows by amount"),
        (["--strategy", "fancy"], "is not one of greedy, bin-packing, sort-by-size"),
        (["--min-files", "1"], "must be at least 2"),
        (["--max-bytes", "lots"], "'lots' is not a size"),
        (["--output", "/nonexistent/plan.json"], "No such file or directory"),
    ],
)
def test_a_mistake_is_answered_with_words_that_help(lakehand, table, arguments, words):
    code, _, err = lakehand("plan", table, *arguments)

    assert code == 2
    assert words in " ".join(err.split())
