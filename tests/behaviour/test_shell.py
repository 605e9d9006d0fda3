"""What surrounds the commands in a shell: help, completion, settings, variables, hints, width."""

from __future__ import annotations

import io
import logging
import re

import click
import pyarrow as pa
import pytest
from click.shell_completion import BashComplete
from rich.console import Console

import lakehand
from lakehand.cli.history import history_screen
from lakehand.cli.main import cli, run
from lakehand.cli.progress_bar import Phases, make_bars
from lakehand.errors import NotInstalledError, RefusedError
from lakehand.observe import Progress, configure_logging
from lakehand.settings import values


@pytest.fixture
def table(tmp_path):
    properties = {"delta.targetFileSize": "64MiB"}
    schema = pa.schema([("id", pa.int64())])
    table = lakehand.create_table(tmp_path / "events", schema, properties=properties)
    table.append(pa.table({"id": [1, 2]}))
    return table


@pytest.mark.parametrize("words", [[], ["compact"], ["clean-logs"], ["tables", "pause"]])
def test_help_is_what_the_option_prints(words, capsys):
    assert run(["help", *words]) == 0
    asked = capsys.readouterr().out
    assert run([*words, "--help"]) == 0
    assert asked == capsys.readouterr().out


def test_help_of_an_unknown_command_is_an_error(capsys):
    assert run(["help", "compct"]) == 2
    assert "No such command 'compct'" in capsys.readouterr().err


def complete(*words: str) -> list[tuple[str, str]]:
    shell = BashComplete(cli, {}, "lakehand", "_LAKEHAND_COMPLETE")
    found = shell.get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in found]


def test_tables_complete_as_directories_and_commands_by_name():
    assert complete("compact", "lake/or") == [("dir", "lake/or")]
    assert complete("maintain", "lake/or") == [("dir", "lake/or")]
    assert complete("compact", "s3://lake/or") == []
    assert complete("help", "comp") == [("plain", "compact")]
    assert ("plain", "--engine") in complete("compact", "lake", "--eng")


def test_settings_of_a_table_count_its_properties(table, capsys):
    assert run(["settings", table.url, "--changed"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"target_file_bytes\s+64 MiB\s+table property", shown)
    assert "min_files" not in shown
    assert table.settings().target_file_bytes == 64 * 2**20
    assert run(["settings", "--changed"]) == 0
    assert "target_file_bytes" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "warning"),
    [
        ("LAKEHAND_TARGT_FILE_BYTES", "did you mean LAKEHAND_TARGET_FILE_BYTES?"),
        ("LAKEHAND_WEB_TOKEN", None),  # a secret that a configuration names
        ("LAKEHAND_CATALOG", None),
    ],
)
def test_a_misspelt_variable_is_named(variable, warning, monkeypatch, capsys):
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(values, "_reported", set())
    assert run(["settings"]) == 0
    said = capsys.readouterr().err
    assert (variable in said) is (warning is not None)
    assert (warning or "") in said


def test_text_logs_have_timestamps(capsys):
    configure_logging(level="info", form="text")
    logging.getLogger("lakehand.tests").info("something happened")
    said = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8} INFO lakehand.tests: something happened\n", said)


def test_hints_use_options_in_the_shell_and_arguments_in_python():
    error = NotInstalledError("no Spark", hint="without Spark: --engine local")
    assert str(error).endswith('hint: without Spark: engine="local"')
    assert error.to_json()["hint"] == "without Spark: --engine local"
    error = RefusedError("lost", hint="--accept-data-loss drops it; `lakehand repair --deep`")
    assert str(error).endswith("hint: accept_data_loss=True drops it; `lakehand repair --deep`")


def drawn(width: int) -> str:
    page = io.StringIO()
    console = Console(file=page, width=width, force_terminal=True, color_system=None)
    with make_bars(console) as bars:
        event = Progress(
            phase="rewrite", done=3, total=8, unit="groups", done_bytes=2**20, total_bytes=2**22
        )
        Phases(bars).show(event)
    return click.unstyle(page.getvalue())


def test_progress_labels_its_times_and_fits_narrow_terminals():
    assert re.search(r"rewrite .*3/8 groups, 1 MiB of 4 MiB elapsed 0:00:00 left ", drawn(100))
    assert re.search(r"rewrite +3/8 groups 0:00:00 elapsed", drawn(44))
    assert "…" not in drawn(44)


def test_a_history_on_a_narrow_terminal_loses_no_time(table):
    page = io.StringIO()
    entries = table.history(limit=1)
    Console(file=page, width=44).print(*history_screen(entries))
    assert "…" not in page.getvalue()
    assert max(map(len, page.getvalue().splitlines())) <= 44
