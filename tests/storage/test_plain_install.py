"""What `pip install lakehand` brings is enough: nothing is borrowed from what tests install."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement

import lakehand

pytestmark = pytest.mark.server

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
#: Runs commands in a process that finds no module but its own and the named ones.
PROGRAM = """
import json, sys
hidden, commands = json.loads(sys.argv[1]), json.loads(sys.argv[2])

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from lakehand.cli.main import run
sys.exit(max(run(command) for command in commands))
"""


def installed_with(names: list[str]) -> set[str]:
    """Return the distributions that come with these, themselves included."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or ())
            waiting += [
                one.name
                for one in wanted
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    return found


def hidden_modules() -> list[str]:
    """Return the modules of all distributions that a plain installation does not bring."""
    wanted = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    known = installed_with([re.match(r"[\w.-]+", line)[0] for line in wanted]) | {"lakehand"}
    owners = metadata.packages_distributions()
    return [
        module
        for module, names in owners.items()
        if not any(re.sub(r"[-_.]+", "-", name).lower() in known for name in names)
    ]


def test_tables_on_s3_need_only_what_the_package_asks_for(s3_server):
    uri = s3_server.new_uri()
    options = s3_server.options
    table = lakehand.create_table(uri, pa.schema([("id", pa.int64())]), storage_options=options)
    table.append(pa.table({"id": [1, 2]}))
    flags = [f"--storage-option={name}={value}" for name, value in options.items()]
    verbs = (["inspect"], ["vacuum"], ["inspect", "--orphans"], ["history"])
    commands = [[*words, uri, *flags] for words in verbs]
    hidden = hidden_modules()
    assert {"deltalake", "pytest", "pyspark", "pandas"} <= set(hidden)

    done = run_without(hidden, *commands)
    assert done.returncode == 0, done.stderr


def run_without(hidden, *commands, **variables):
    program = [sys.executable, "-c", PROGRAM, json.dumps(hidden), json.dumps(commands)]
    environment = {**os.environ, **variables}
    return subprocess.run(program, capture_output=True, text=True, check=False, env=environment)


def test_a_table_is_compacted_without_spark(tmp_path):
    table = lakehand.create_table(tmp_path, pa.schema([("id", pa.int64())]))
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    # More than an automatic choice leaves to local processes, if Spark were there.
    commands = [["compact", str(tmp_path), "--min-files", "2"], ["inspect", str(tmp_path)]]
    done = run_without(hidden_modules(), *commands, LAKEHAND_SPARK_ABOVE_BYTES="0")
    assert done.returncode == 0, done.stderr
    assert table.snapshot().file_count == 1
    assert (
        done.stderr.count("because PySpark is not installed (pip install 'lakehand[spark]')") == 1
    )


def test_spark_that_is_not_installed_is_named_with_its_command(tmp_path):
    table = lakehand.create_table(tmp_path, pa.schema([("id", pa.int64())]))
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    command = ["compact", str(tmp_path), "--min-files", "2", "--engine", "spark"]
    done = run_without(hidden_modules(), command)
    assert done.returncode == 2
    assert "PySpark is not installed" in done.stderr
    assert "pip install 'lakehand[spark]'" in done.stderr
