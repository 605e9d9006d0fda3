"""A real Prometheus for tests, which scrapes a server on this machine and evaluates rules."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "prometheus" / "usr" / "bin"
RULES = ROOT / "deploy/prometheus/lakehand-alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/lakehand.json"


def dashboard_queries() -> list[str]:
    """Return the queries of all panels of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def find_program(name: str) -> Path | None:
    """Return `prometheus` or `promtool`; None if it is not installed."""
    if (CACHE / name).exists():
        return CACHE / name
    found = shutil.which(name)
    return Path(found) if found else None


class PrometheusServer:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the HTTP API; the whole answer if it is an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with closing(connection):
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
            answer = json.loads(connection.getresponse().read())
        return answer["data"] if answer["status"] == "success" else answer

    def firing(self) -> set[str]:
        found = self.get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


@contextmanager
def run_prometheus(directory: Path, target: str, rules: str) -> Iterator[PrometheusServer]:
    """Scrape `target` (host:port) every second and evaluate `rules` as often."""
    program = find_program("prometheus")
    assert program is not None
    (directory / "rules.yml").write_text(rules)
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yml")],
        "scrape_configs": [{"job_name": "lakehand", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_ready(process, port)
        yield PrometheusServer(port)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"Prometheus ended with code {process.returncode}")
        if _is_ready(port):
            return
        time.sleep(0.05)
    raise RuntimeError("Prometheus was not ready in time")


def _is_ready(port: int) -> bool:
    """Whether it answers: it listens before that."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
