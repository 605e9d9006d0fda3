"""`lakehand sql`: formats of results, exit codes, standard input and the shell."""

from __future__ import annotations

import inspect
import io
import json
import re
import sys

import pyarrow as pa
import pytest

import lakehand
from lakehand.cli.main import run
from lakehand.cli.sql import _SCREENS, _SERVICE_SCREENS
from lakehand.cli.sql import _screen as _screen_of
from lakehand.cli.sql_shell import Completer, Shell, history_file
from lakehand.sql import grammar as sql_grammar
from lakehand.sql.sql_session import SqlSession
from support.small_tables import make_table


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no lakehand.toml there
    return make_table(tmp_path / "t", commits=2)


#: One statement for each verb.
VERBS = (
    "COMPACT TABLE t", "OPTIMIZE t RECOMPUTE STATISTICS", "VACUUM t", "PURGE t", "CHECKPOINT t",
    "VERIFY t", "REPAIR t", "MAINTAIN t", "DEDUPLICATE t EXACT", "RESTORE t TO VERSION AS OF 1",
)  # fmt: skip
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


def _screen(capsys, *arguments):
    assert run(list(arguments)) == 0
    # What was measured differs.
    return re.sub(
        r"[\d.,]+ m?s\b|[\d.,]+ [KMG]?i?B/s|[\d.,]+ rows/s", "<n>", capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("statement", "command"),
    {
        "VACUUM {t} DRY RUN": "vacuum {t} --dry-run",
        "COMPACT TABLE {t} WITH (min_files = 2) DRY RUN": "compact {t} --min-files 2 --dry-run",
        "COMPACT TABLE {t} Z_ORDER BY (id) DRY RUN": "cluster {t} --by id --curve zorder --dry-run",
        "OPTIMIZE {t} RECOMPUTE STATISTICS DRY RUN": "statistics {t} --dry-run",
        "PURGE TABLE {t} DRY RUN": "purge {t} --dry-run",
        "VERIFY TABLE {t}": "verify {t}",
        "REPAIR TABLE {t} DRY RUN": "repair {t} --dry-run",
        "MAINTAIN TABLE {t} DRY RUN": "maintain {t} --dry-run",
        "DEDUPLICATE TABLE {t} BY (region) DRY RUN": "deduplicate {t} --key region --dry-run",
        "RESTORE {t} TO VERSION AS OF 0 DRY RUN": "restore {t} --version 0 --dry-run",
        "EXPLAIN OPTIMIZE {t} WITH (min_files = 2)": "plan {t} --min-files 2",
        "ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS (x)": "properties unset {t} x --if-exists",
        "CHECKPOINT TABLE {t}": "checkpoint {t}",  # written by the first one
    }.items(),
)
def test_a_statement_has_the_screen_of_its_command(path, capsys, statement, command):
    if "CHECKPOINT" in statement:
        lakehand.open_table(path).checkpoint()
    shown = _screen(capsys, "sql", statement.format(t=path))
    assert shown == _screen(capsys, *command.format(t=path).split())
    assert shown


def test_every_report_has_a_screen():
    """Those that statements return: what `Table` declares for their methods."""
    methods = {sql_grammar.parse_statement(text).verb for text in VERBS} - {"optimize"}
    methods |= {"cluster", "set_properties", "unset_properties", "cluster_by", "plan"}
    returned = {
        inspect.signature(getattr(lakehand.Table, name)).return_annotation for name in methods
    }
    assert {*returned, "MergeReport"} == set(_SCREENS)
    for place in (*_SCREENS.values(), *_SERVICE_SCREENS.values()):
        assert callable(_screen_of(place))


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
