"""The systemd unit and the container file name what exists, and leave the service time to end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakehand.cli.main import cli
from lakehand.model.quantities import parse_duration
from lakehand.service.config import ServiceSection

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy/lakehand.service").read_text()
CONTAINER = (ROOT / "deploy/Containerfile").read_text()


def test_systemd_accepts_the_unit(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "lakehand.service"
    lakehand = Path(sys.executable).with_name("lakehand")
    unit.write_text(UNIT.replace("/opt/lakehand/bin/lakehand", str(lakehand)))
    checked = subprocess.run([program, "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_waits_longer_than_jobs_may_take_to_drain():
    wait = re.search(r"TimeoutStopSec=(\d+)min", UNIT)
    assert wait is not None
    assert parse_duration(f"{wait[1]}m") > ServiceSection().drain_timeout


@pytest.mark.parametrize(
    "arguments",
    [
        re.search(r"ExecStart=\S+lakehand (.*)", UNIT)[1].split(),
        re.findall(r'"([^"]+)"', re.search(r"CMD (.*)", CONTAINER)[1]),
    ],
    ids=["unit", "container"],
)
def test_the_commands_exist(arguments):
    answer = CliRunner().invoke(cli, [*arguments, "--help"])
    assert answer.exit_code == 0, answer.output


def test_the_container_installs_extras_that_exist():
    extras = re.search(r"/src\[([a-z,]+)\]", CONTAINER)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
