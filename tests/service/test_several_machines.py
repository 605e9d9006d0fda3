"""A scheduler and workers as on several machines: PostgreSQL, an S3 server, a Spark cluster."""

from __future__ import annotations

import contextlib
import signal

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.serving import Lake

FILES = 4
CONFIG = """
[service]
lease = "3s"
poll_interval = "2s"
store = "{store}"
max_concurrent_jobs = 2
[[source]]
name = "lake"
include = ["{base}"]
every = "2s"
[storage.lake]
match = ["s3://**"]
endpoint = "{endpoint}"
region = "us-east-1"
allow_http = "true"
access_key_id = "env:LAKE_KEY"
secret_access_key = "env:LAKE_SECRET"
[[pool]]
name = "default"
[[pool]]
name = "cluster"
engine = "spark"
master = "local-cluster[2,1,1024]"
[policy.default]
quiet_period = "0s"
min_files = 2
[policy.large]
match = ["{base}/large*"]
pool = "cluster"
quiet_period = "0s"
min_files = 2
"""


@pytest.fixture
def clock():
    return None  # That of the database.


class Machines(Lake):
    """Processes that share a PostgreSQL store and tables on an S3 server."""

    def __init__(self, root, store_url, server):
        super().__init__(root)
        self.store_url = store_url
        self.server = server
        self.base = server.new_uri()
        self.options = {**server.options, "aws_conditional_put": "etag"}
        self.config.write_text(
            CONFIG.format(store=store_url, base=self.base, endpoint=server.endpoint)
        )

    def write(self, name):
        for number in range(FILES):
            rows = pa.table({"id": [number * 10 + n for n in range(10)]})
            write_deltalake(
                f"{self.base}/{name}", rows, mode="append", storage_options=self.options
            )

    def open(self, name):
        return DeltaTable(f"{self.base}/{name}", storage_options=self.options)

    def start(self, *options, **_):
        secrets = {
            "LAKE_KEY": self.server.options["access_key_id"],
            "LAKE_SECRET": self.server.options["secret_access_key"],
        }
        return super().start(*options, environment=secrets)

    def file_counts(self, names):
        return {len(self.open(name).file_uris()) for name in names}

    def check_all_done_once(self, names):
        for name in names:
            table = self.open(name)
            ids = table.to_pyarrow_table()["id"].to_pylist()
            assert sorted(ids) == list(range(FILES * 10))
            operations = [entry["operation"] for entry in table.history()]
            assert operations.count("OPTIMIZE") == 1, (name, operations)


@pytest.fixture
def machines(tmp_path, emptied_postgresql, s3_server):
    made = Machines(tmp_path, emptied_postgresql, s3_server)
    yield made
    made.kill_all()


def test_a_killed_worker_loses_nothing_and_all_work_is_done_once(machines):
    names = [f"t{number}" for number in range(6)]
    for name in names:
        machines.write(name)
    machines.start("--roles", "scheduler")
    first = machines.start("--roles", "worker")
    machines.wait_for(lambda: machines.jobs(states=["running"]))
    second = machines.start("--roles", "worker")
    first.send_signal(signal.SIGKILL)
    machines.wait_for(lambda: machines.file_counts(names) == {1}, seconds=120)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    machines.check_all_done_once(names)
    assert machines.server.options["secret_access_key"] not in machines.read_log()


def spark_drivers(pid):
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # One that has ended meanwhile.
            found += [child.pid] if "SparkSubmit" in " ".join(child.cmdline()) else []
    return found


@pytest.mark.spark
@pytest.mark.xdist_group("oracle")
def test_tables_of_a_spark_pool_share_one_session(machines):
    large, small = ["large0", "large1"], ["small"]
    for name in [*large, *small]:
        machines.write(name)
    machines.start("--roles", "scheduler")
    worker = machines.start("--roles", "worker")
    machines.wait_for(lambda: machines.file_counts([*large, *small]) == {1}, seconds=240)
    machines.wait_for(lambda: len(machines.jobs(states=["succeeded"])) == 3)
    # The session is kept for the next job of the pool, and ends with the worker.
    assert len(spark_drivers(worker.pid)) == 1
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    machines.check_all_done_once([*large, *small])
    engines = {job.engine for job in machines.jobs() if job.pool == "cluster"}
    assert engines == {"spark"}
