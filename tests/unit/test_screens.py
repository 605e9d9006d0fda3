"""What the command prints, without a table."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from lakehand.assess.inspection import inspect_snapshot
from lakehand.cli import inspect as inspection_page
from lakehand.cli.checkpoint import checkpoint_screen
from lakehand.cli.file_lists import file_lines, file_records
from lakehand.cli.history import history_screen
from lakehand.cli.inspect import inspection_screen
from lakehand.cli.main import COMMANDS, cli
from lakehand.cli.output import print_document, print_error, print_screen
from lakehand.cli.settings import settings_screen
from lakehand.errors import StorageError
from lakehand.model.reports import CheckpointReport, HistoryEntry
from lakehand.settings import Settings
from support.snapshots import make_snapshot

MIB = 2**20
SETTINGS = Settings(environment={})


def show(parts, *, width=100):
    page = io.StringIO()
    Console(file=page, width=width, highlight=False).print(*parts, sep="\n")
    return page.getvalue()


def inspection(files, **options):
    snapshot = make_snapshot(files, **options)
    return inspect_snapshot(snapshot, format_name="delta", settings=SETTINGS)


def test_a_healthy_table_has_nothing_to_do():
    page = show(inspection_screen(inspection([{"bytes": 128 * MIB}])))
    assert "health 100/100" in page
    assert "nothing to do" in page


def test_an_unhealthy_table_shows_each_reason_with_its_points():
    report = inspection([{"rows": 100, "deleted_rows": 50}] * 20, version=30)
    page = show(inspection_screen(report))
    for reason in report.health.reasons:
        assert f"-{reason.points}" in page
    assert len(report.health.reasons) == 3


def test_an_unknown_row_count_is_said():
    assert "unknown" in show(inspection_screen(inspection([{"rows": None}])))


def test_every_range_of_the_histogram_has_a_line():
    report = inspection([{"bytes": size * MIB} for size in (1, 1, 1, 5, 20, 40, 100, 200, 900)])
    lines = show(inspection_screen(report)).splitlines()[-7:]
    assert [line.split("  ")[-1].strip("█▏▎▍▌▋▊▉ ") for line in lines] == [""] * 7
    assert "below 2 MiB" in lines[0]
    assert "256 MiB and more" in lines[-1]


@pytest.mark.parametrize(
    ("count", "largest", "bar"),
    [(0, 10, ""), (10, 10, "█" * 32), (5, 10, "█" * 16), (1, 10**6, "▏"), (0, 0, "")],
)
def test_bars_are_in_proportion_and_never_hide_a_file(count, largest, bar):
    assert inspection_page._bar(count, largest) == bar


def test_a_narrow_terminal_loses_no_word():
    words = show(inspection_screen(inspection([{}] * 20)), width=40).split()
    assert "compaction" in words
    assert "partitions" in words


def test_on_a_narrow_terminal_the_bars_give_way():
    report = inspection([{"bytes": MIB}] * 20 + [{"bytes": 100 * MIB}] * 3)
    lines = show(inspection_screen(report), width=40).splitlines()[-8:]
    assert [line.split("  ")[0] for line in (line.strip() for line in lines)][:2] == [
        "file size",
        "below 2 MiB",
    ]
    assert "20   20 MiB  █" in lines[1]
    assert "64 MiB to 128 MiB      3  300 MiB" in lines[5]


def test_history_marks_what_is_proved():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    plain = HistoryEntry(version=1, at=at, operation=None)
    proved = HistoryEntry(version=2, at=at, operation="OPTIMIZE", summary="1 files", proof={"a": 1})
    page = show(history_screen([proved, plain]))
    assert "1 files; rows proved equal" in page
    assert page.count("proved") == 1
    assert "2026-01-02 03:04:05" in page


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("committed", "checkpoint of version 7 written: 3 entries in 2 files, 1 KiB"),
     ("nothing_to_do", "nothing to do: version 7 has a complete checkpoint")],
)  # fmt: skip
def test_a_checkpoint_is_one_sentence(outcome, words):
    report = CheckpointReport(
        outcome=outcome, table="t", version=7, kind="v2", files=("a", "b"), bytes=1024,
        action_count=3, duration_ms=1.0,
    )  # fmt: skip
    assert words in show(checkpoint_screen(report))


def test_files_are_listed_smallest_first_with_their_whole_path():
    paths = {"deep/" * 40 + "large": 3 * MIB, "small": MIB}
    snapshot = make_snapshot([{"path": path, "bytes": size} for path, size in paths.items()])
    lines = list(file_lines(snapshot))[2:]
    assert [line.split()[-1] for line in lines] == ["small", "deep/" * 40 + "large"]


def test_file_records_are_plain_json():
    snapshot = make_snapshot([{"rows": None}], partition_columns=["day"])
    [record] = json.loads(json.dumps(list(file_records(snapshot))))
    assert record["rows"] is None
    assert record["modified_at"] == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("entries", [[], [{"a": 1}], [{"a": 1}, {"a": "ü"}]])
def test_a_streamed_document_is_one_document(capsys, entries):
    print_document({"table": "t"}, records=("files", iter(entries)))
    assert json.loads(capsys.readouterr().out) == {"table": "t", "files": entries}


def test_an_error_is_words_on_stderr_and_a_document_on_stdout(capsys):
    error = StorageError("it broke [here]", hint="mend [it]", path="p").to_json()
    print_error(error, as_json=True)
    captured = capsys.readouterr()
    assert captured.err == "error: it broke [here]\nhint: mend [it]\n"
    assert json.loads(captured.out) == {"error": error}


def test_a_screen_in_a_pipe_has_no_colours_and_no_trailing_blanks(capsys):
    print_screen(*inspection_screen(inspection([{}] * 3)))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert not any("\x1b" in line for line in lines)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_screen_on_a_terminal_has_colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_screen(*inspection_screen(inspection([{}] * 3)))
    assert "\x1b[" in terminal.getvalue()


def test_settings_are_shown_with_units():
    settings = Settings({"engine": "local"}, environment={})
    page = show(settings_screen(settings, list(settings)), width=140)
    assert "128 MiB" in page
    assert "100 ms" in page
    assert "local" in page


def test_the_help_lists_commands_in_their_order_and_cuts_no_sentence_off():
    page = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    listed = [line.split()[0] for line in page.partition("Commands:")[2].splitlines() if line]
    assert listed == list(COMMANDS)
    assert "..." not in page.partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_module_of_its_name(name):
    command = cli.get_command(click.Context(cli), name)
    assert command.name == name
    assert command.help


@pytest.mark.parametrize("words", [["compct"], ["help", "compct"]])
def test_an_unknown_command_is_bad_usage(words):
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "No such command 'compct'. Did you mean 'compact'?" in result.output


def test_a_table_in_place_of_a_command_is_shown_how_to_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    result = CliRunner().invoke(cli, ["orders"])
    assert "To inspect a table: lakehand inspect orders" in result.output


def test_an_empty_table_has_no_histogram():
    assert "file size" not in show(inspection_screen(inspection([])))
