"""`lakehand serve` as a user runs it: a process, a folder of tables, signals."""

from __future__ import annotations

import re
import signal
import time

import pyarrow as pa
import pytest

import lakehand
from lakehand.service.config import load_config
from lakehand.service.store.database import open_database
from lakehand.service.store.events import EventLog
from support.serving import EAGER, Lake


@pytest.fixture
def lake(tmp_path):
    made = Lake(tmp_path)
    made.configure()
    yield made
    made.kill_all()


def test_all_tables_of_a_folder_are_maintained_and_a_signal_ends_it(lake):
    for number in range(4):
        lake.create(f"t{number}")
    lake.start()
    lake.wait_for(lambda: set(lake.file_counts().values()) == {1})
    # A table that comes later is found, and one that is written to is looked at again.
    lake.create("late")
    table = lakehand.open_table(lake.root / "tables" / "t0")
    for number in range(3):
        table.append(pa.table({"part": [0], "id": [100 + number]}))
    lake.wait_for(lambda: set(lake.file_counts().values()) == {1})
    assert lake.end() == 0
    assert not lake.jobs(states=["running"])
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 100, 101, 102]


def test_a_service_that_is_ended_in_the_middle_of_work_goes_on_where_it_was(lake):
    lake.configure(EAGER, "max_concurrent_jobs = 2")
    for number in range(8):
        lake.create(f"t{number}", files=3, parts=4)
    lake.start()
    lake.wait_for(lambda: lake.jobs(states=["running"]))
    assert lake.end() == 0
    assert not lake.jobs(states=["running"])
    lake.start()
    lake.wait_for(lambda: set(lake.file_counts().values()) == {4})
    assert lake.end() == 0
    for path in sorted((lake.root / "tables").iterdir()):
        ids = lakehand.open_table(path).to_arrow()["id"].to_pylist()
        assert sorted(ids) == list(range(12))
    assert {job.state for job in lake.jobs()} <= {"succeeded", "queued", "cancelled"}


def test_a_second_signal_ends_jobs_at_once_and_they_are_queued_again(lake):
    for number in range(6):
        lake.create(f"t{number}", parts=4)
    lake.start()
    lake.wait_for(lambda: lake.jobs(states=["running"]))
    lake.signal(signal.SIGTERM)
    lake.signal(signal.SIGTERM)
    assert lake.process.wait(40) == 0
    assert not lake.jobs(states=["running", "failed"])


def test_a_wrong_file_changes_nothing_and_a_right_one_holds_at_once(lake):
    lake.configure("[policy.default]\nenabled = false\n")
    lake.create("a")
    lake.start()
    lake.wait_for(lambda: [table for table in lake.tables() if table.version is not None])
    lake.config.write_text(lake.config.read_text() + "qiet_period = '0s'\n")
    lake.signal(signal.SIGHUP)
    lake.wait_for(lambda: "the old one holds" in lake.read_log())
    assert "did you mean quiet_period" in lake.read_log()
    lake.wait_for(lambda: "service.config_refused" in lake.event_kinds())
    assert not lake.jobs()
    lake.configure()
    lake.signal(signal.SIGHUP)
    lake.wait_for(lambda: lake.file_counts() == {"a": 1})
    assert lake.end() == 0


def test_a_job_that_waits_for_its_budget_starts_when_the_budget_is_raised(lake):
    lake.configure(EAGER + "[budget.all]\nbytes_per_day = 1\n")
    lake.create("a")
    lake.start()
    lake.wait_for(lambda: [job for job in lake.jobs(states=["queued"]) if job.fence])
    # It starts tomorrow, and not at every look of the scheduler.
    time.sleep(3)
    [job] = lake.jobs(states=["queued"])
    assert (job.fence, job.waits_for) == (1, "budget")
    assert lake.file_counts()["a"] > 1
    lake.configure(EAGER + '[budget.all]\nbytes_per_day = "1GiB"\n')
    lake.signal(signal.SIGHUP)
    lake.wait_for(lambda: lake.file_counts() == {"a": 1})
    assert lake.end() == 0


def test_a_table_that_was_just_written_is_compacted_later(lake):
    lake.configure(EAGER.replace('quiet_period = "0s"', 'quiet_period = "15s"'))
    lake.create("old", files=1)
    lake.start()
    # A busy machine takes long to start the service: its files would no longer be new.
    lake.wait_for(lambda: [table for table in lake.tables() if table.version is not None])
    lake.create("a")
    # The first job finds its files too new; no write follows, and they are compacted.
    lake.wait_for(lambda: lake.file_counts() == {"old": 1, "a": 1})
    assert lake.end() == 0
    assert "quiet_period" in {job.trigger for job in lake.jobs()}


def test_what_a_policy_and_a_table_say_reaches_the_job(lake):
    steps = 'steps = ["compact"]\ntarget_file_bytes = "400B"\n'
    lake.configure(EAGER + steps)
    properties = {"delta.targetFileSize": "128MiB"}
    lake.create("a", files=4, properties=properties)
    lake.create("b", files=4)
    lake.start()
    # The property of `a` is above the policy, by which the files of `b` are not small.
    lake.wait_for(lambda: lake.file_counts()["a"] == 1 and lake.jobs(states=["succeeded"]))
    assert lake.end() == 0
    assert lake.file_counts()["b"] > 1
    assert {job.table_url.rpartition("/")[2] for job in lake.jobs()} == {"a"}
    others = ["checkpoint", "clean_logs", "cluster", "vacuum"]
    assert all(job.options == {"skip": others} for job in lake.jobs())


def test_paths_of_a_file_are_relative_to_it(lake, monkeypatch, tmp_path):
    lake.config.write_text('[[source]]\nname = "a"\ninclude = ["tables", "s3://x/*"]\n')
    monkeypatch.chdir("/")
    config = load_config(lake.config)
    assert config.sources[0].include == (f"{tmp_path}/tables", "s3://x/*")
    assert config.service.store == f"sqlite:///{tmp_path}/lakehand.db"


def test_history_is_kept_for_as_long_as_the_file_says(lake):
    lake.create("a")
    lake.start()
    lake.wait_for(lambda: lake.file_counts() == {"a": 1} and lake.jobs(states=["succeeded"]))
    assert lake.end() == 0
    database = open_database(lake.store_url)
    events = EventLog(database)
    assert events.prune(0.0) == 0
    assert events.prune(database.time() + 1) > 0
    database.close()
    assert not lake.jobs(states=["succeeded"])


def test_a_notification_and_a_hook_of_a_running_service(lake, tmp_path):
    told = tmp_path / "told.jsonl"
    hook = f"[[hook]]\nevents = ['job.succeeded']\ncommand = ['tee', '-a', '{told}']\n"
    lake.configure(hook + EAGER, "max_poll_interval = '1h'")
    path = lake.create("a", files=1)
    lake.start()
    url = lake.wait_for(lambda: re.search(r"Listening at (\S+)", lake.read_log()))[1]
    lake.wait_for(lambda: lake.jobs(states=["succeeded"]))
    table = lakehand.open_table(path, notify_url=url)
    for number in range(3):
        table.append(pa.table({"part": [0], "id": [10 + number]}))
    lake.wait_for(lambda: lake.file_counts() == {"a": 1})
    lake.wait_for(lambda: told.exists() and told.read_text().count("job.succeeded") >= 2)
    assert lake.end() == 0
