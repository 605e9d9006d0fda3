"""The systemd unit and the container file name what exists, and leave the service time to end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lakehand.cli.main import cli
from lakehand.model.quantities import parse_duration
from lakehand.service.config import ServiceSection, parse_config

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
        re.findall(r'"([^"]+)"', re.search(r"^CMD (.*)", CONTAINER, re.MULTILINE)[1]),
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


MANIFESTS = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/lakehand.yaml").read_text()))
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for one in MANIFESTS
    if one["kind"] == "Deployment"
}


def test_the_container_runs_as_a_numbered_user_and_is_asked_for_its_health():
    user = re.search(r"^USER (\d+)$", CONTAINER, re.MULTILINE)
    assert user is not None
    assert f"--uid {user[1]} " in CONTAINER
    assert {pod["securityContext"]["runAsUser"] for pod in PODS.values()} == {int(user[1])}
    assert "/healthz" in re.search(r"HEALTHCHECK.*\n.*", CONTAINER)[0]


@pytest.mark.parametrize("name", sorted(PODS))
def test_pods_have_time_to_drain_and_no_privileges(name):
    pod = PODS[name]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > ServiceSection().drain_timeout.total_seconds()
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["resources"]["limits"]["memory"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    answer = CliRunner().invoke(cli, [*container["args"], "--help"])
    assert answer.exit_code == 0, answer.output


def test_probes_and_service_reach_the_port_of_the_configuration():
    by_kind = {one["kind"]: one for one in MANIFESTS if one["kind"] != "Deployment"}
    text = by_kind["ConfigMap"]["data"]["lakehand.toml"]
    config = parse_config(tomllib.loads(text))
    (container,) = PODS["lakehand-scheduler"]["containers"]
    (port,) = container["ports"]
    assert config.web.listen.endswith(f":{port['containerPort']}")
    assert by_kind["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}
    assert probes == {
        "startupProbe": {"path": "/healthz", "port": port["name"]},
        "livenessProbe": {"path": "/healthz", "port": port["name"]},
        "readinessProbe": {"path": "/readyz", "port": port["name"]},
    }
    selected = by_kind["Service"]["spec"]["selector"].items()
    scheduler = next(one for one in MANIFESTS if one["metadata"]["name"] == "lakehand-scheduler")
    assert selected <= scheduler["spec"]["template"]["metadata"]["labels"].items()
