"""Runs that end before anyone can scrape them write their metrics, or push them."""

from __future__ import annotations

import base64
import http.server
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import lakehand
from lakehand.cli.main import run as command
from lakehand.service.many_tables import TableResult
from lakehand.service.run_metrics import RunMetrics

SECRET = "a-password-that-no-log-may-show"
EAGER = ["--min-files", "2", "--quiet-period", "0s", "--engine", "local"]


def values_of(text):
    return {
        (sample.name.removeprefix("lakehand_run_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def table(tmp_path):
    made = lakehand.create_table(tmp_path / "lake" / "orders", pa.schema({"id": pa.int64()}))
    for number in range(4):
        made.append(pa.table({"id": [number]}))
    return made


@pytest.fixture
def file(tmp_path):
    (tmp_path / "collector").mkdir()
    return tmp_path / "collector" / "lakehand.prom"


class Gateway:
    """A Pushgateway that keeps what it gets."""

    def __init__(self):
        self.got, self.status = [], 200

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PUT(handler):  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.got.append((handler.path, dict(handler.headers), body.decode()))
                handler.send_response(self.status)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.host = f"127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def gateway():
    opened = Gateway()
    yield opened
    opened.close()


def test_a_run_writes_its_metrics_into_a_file(table, file):
    assert command(["maintain", table.url, "--metrics-file", str(file), *EAGER]) == 0
    values = values_of(file.read_text())
    assert values["success", table.url] == 1
    assert values["timestamp_seconds", table.url] > 1.7e9
    assert values["files_removed", "compact", table.url] == 4
    assert values["files_added", "compact", table.url] == 1
    assert values["bytes_rewritten", "compact", table.url] > 0
    assert values["operations", "committed", "compact", table.url] == 1
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_run_that_fails_says_so(table, file):
    commit = max((table_path(table) / "_delta_log").glob("*.json"))
    commit.write_bytes(b'{"add": ')
    assert command(["maintain", table.url, "--metrics-file", str(file), *EAGER]) != 0
    assert values_of(file.read_text())["success", table.url] == 0


def table_path(table):
    return Path(table.url.removeprefix("file://"))


def test_many_tables_are_one_file(table, file):
    root = table_path(table).parent
    lakehand.create_table(root / "empty", pa.schema({"id": pa.int64()}))
    assert command(["maintain", str(root), "--metrics-file", str(file), *EAGER]) == 0
    values = values_of(file.read_text())
    assert values["success", table.url] == values["success", f"file://{root}/empty"] == 1
    assert values["files_removed", "compact", table.url] == 4


def test_a_run_pushes_its_metrics(table, gateway, monkeypatch):
    monkeypatch.setenv("GATEWAY", f"http://me:{SECRET}@{gateway.host}/")
    options = ["--metrics-push", "env:GATEWAY", "--metrics-job", "nightly"]
    assert command(["maintain", table.url, *options, *EAGER]) == 0
    ((path, headers, body),) = gateway.got
    assert path == "/metrics/job/nightly"
    expected = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert headers["Authorization"] == f"Basic {expected}"
    assert values_of(body)["files_removed", "compact", table.url] == 4


def test_a_gateway_that_fails_fails_no_run_and_shows_no_secret(table, gateway, capfd):
    gateway.status = 500
    for host in (gateway.host, "127.0.0.1:1"):
        url = f"http://me:{SECRET}@{host}"
        assert command(["maintain", table.url, "--metrics-push", url, *EAGER]) == 0
    shown = capfd.readouterr()
    assert "Metrics were not written to the Pushgateway" in shown.err
    assert SECRET not in shown.err + shown.out
    assert table.snapshot().file_count == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--metrics-file", "/no/such/directory/x.prom"],
        ["--metrics-push", "gateway:9091"],
        ["--metrics-push", "env:NOT_SET"],
        ["--metrics-file", "x.prom", "--dry-run"],
    ],
)
def test_what_cannot_be_told_is_refused_before_the_run(table, options):
    assert command(["maintain", table.url, *options, *EAGER]) == 2
    assert table.snapshot().file_count == 4


def test_a_table_that_was_not_run_has_no_metrics(file):
    results = [
        TableResult(table="s3://lake/a", outcome="not_run"),
        TableResult(table="s3://lake/b", outcome="failed", duration_ms=1500),
    ]
    RunMetrics(file=file).tell(results)
    values = values_of(file.read_text())
    assert {key[1] for key in values} == {"s3://lake/b"}
    assert values["duration_seconds", "s3://lake/b"] == 1.5
