"""`lakehand sql`: formats of results, exit codes, standard input and the shell."""

from __future__ import annotations

import io
import json
import sys

import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.cli.sql_shell import Completer, Shell, history_file
from lakehand.sql.sql_session import SqlSession
from support.small_tables import make_table


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no lakehand.toml there
    return make_table(tmp_path / "t", commits=2)


QUERY = "SELECT version, operation FROM system.history(:t) ORDER BY version"


def test_the_document_is_that_of_python(path, capsys):
    assert run(["sql", "--json", QUERY, "--param", f"t={path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == lakehand.run_sql(QUERY, {"t": str(path)}).to_json()


def test_rows_are_drawn_as_a_table_csv_or_arrow(path, capfdbinary):
    arguments = ["sql", QUERY, "--param", f"t={path}"]
    assert run(arguments) == 0
    drawn = capfdbinary.readouterr().out.decode()
    assert "│       0 │ WRITE     │" in drawn
    assert drawn.endswith("2 rows\n")
    assert run([*arguments, "--format", "csv"]) == 0
    assert capfdbinary.readouterr().out == b"version,operation\n0,WRITE\n1,WRITE\n"
    assert run([*arguments, "--format", "arrow"]) == 0
    sys.stdout.flush()
    assert pa.ipc.open_stream(capfdbinary.readouterr().out).read_all().num_rows == 2


def test_a_report_is_shown_field_by_field(path, capsys):
    assert run(["sql", f"VACUUM {path} DRY RUN"]) == 0
    assert "dry_run" in capsys.readouterr().out


def test_errors_have_their_exit_code_and_show_the_place(path, capsys):
    assert run(["sql", "--json", "OPTIMISE t"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["code"] == "SQL_ERROR"
    assert "\n  OPTIMISE t\n  ^\n" in shown.err
    assert "did you mean OPTIMIZE?" in shown.err
    assert run(["sql", "VACUUM nowhere"]) == 1


def test_a_damaged_table_has_the_exit_code_of_verify(path, capsys):
    next(path.rglob("*.parquet")).unlink()
    assert run(["sql", f"VERIFY TABLE {path}"]) == 5
    capsys.readouterr()


def test_statements_of_standard_input_run_up_to_the_first_error(path, capsys, monkeypatch):
    text = f"SHOW SETTINGS LIKE 'min_files';\nOPTIMIZE {path} FULL;\nOPTIMIZE {path};"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(["sql", "--format", "csv"]) == 2
    assert capsys.readouterr().out.startswith("name,value")
    assert lakehand.open_table(path).snapshot().version == 1


def shell(lines, session=None):
    waiting = iter(lines)

    def read(_prompt):
        line = next(waiting, EOFError)
        if line in {EOFError, KeyboardInterrupt}:
            raise line
        return line

    return Shell(session or SqlSession(), "table", read=read).run()


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_shell_reads_statements_of_several_lines_and_survives_errors(path, capsys):
    lines = [
        "SELECT version",
        KeyboardInterrupt,  # drops what was typed
        "SELECT version FROM",
        f"  system.history('{path}') -- ; not the end",
        "WHERE operation = ';' OR version = 1; SHOW",
        "SETTINGS LIKE 'min_files';",
        "OPTIMISE t;",
        r"\x",
        "SHOW SETTINGS LIKE 'min_files';",
        r"\d",
        r"\?",
        r"\z",
        r"\q",
        "never read",
    ]
    assert shell(lines) == 0
    shown = capsys.readouterr()
    assert "│       1 │" in shown.out
    assert shown.out.count("Minimum number of small files") >= 2
    assert "did you mean OPTIMIZE?" in shown.err
    assert "system.files('t')" in shown.out
    assert r"there is no \z" in shown.err


def test_the_history_is_kept_for_its_user_alone(path):
    assert shell([EOFError]) == 0
    assert history_file().stat().st_mode & 0o077 == 0


def test_words_tables_and_settings_are_completed():
    completer = Completer(SqlSession())
    assert completer.candidates("COMPA") == ["COMPACT"]
    assert completer.candidates("system.w") == ["system.workers"]
    assert "target_file_bytes" in completer.candidates("target")
    assert completer.complete("vacuu", 0) == "vacuum"
    assert completer.complete("vacuu", 9) is None
