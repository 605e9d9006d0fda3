"""No code is run from the directory in which a command is started, by whatever process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.planted_modules import NAMES, plant
from support.small_tables import make_table, read_sorted

LAKEHAND = str(Path(sys.executable).parent / "lakehand")
IN_A_PROGRAM = "import sys; sys.path.remove(''); from lakehand.cli.main import main; main()"
#: How a driver is started, by name.
STARTS = {
    "command": [LAKEHAND],
    "module": [sys.executable, "-m", "lakehand"],
    "program": [sys.executable, "-c", IN_A_PROGRAM],
}


def start(how: str, *arguments: str, cwd: Path, **environment: str):
    return subprocess.run(
        [*STARTS[how], *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def names_for(how: str) -> list[str]:
    # Python itself looks for a module to run where it is started, before any line of lakehand.
    return [name for name in NAMES if how != "module" or name != "lakehand"]


@pytest.mark.parametrize("how", STARTS)
def test_a_compaction_started_inside_a_table_runs_no_code_of_the_table(tmp_path, how):
    table = make_table(tmp_path / "events", commits=2)
    rows = read_sorted(table)
    trace = plant(table, names_for(how))

    done = start(how, "compact", ".", "--engine", "local", "--json", cwd=table)

    assert not trace.exists(), trace.read_text()
    assert done.returncode == 0, done.stderr
    assert read_sorted(table).equals(rows)


def test_processes_that_list_directories_run_no_code_of_the_table(tmp_path):
    trace = plant(tmp_path)
    for number in range(20):
        (tmp_path / f"part={number}").mkdir()
    program = (
        "import sys; sys.path.remove('')\n"
        "from lakehand.storage.local_backend import TreeProcesses\n"
        "with TreeProcesses('.') as processes:\n"
        "    processes.list([f'part={n}' for n in range(20)])\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert not trace.exists(), trace.read_text()
    assert done.returncode == 0, done.stderr
