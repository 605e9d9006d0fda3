"""Worker processes outlive a run, and the next one finds them as it would find new ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lakehand.engine import LocalRunner
from lakehand.engine.local_worker import end_idle_workers, start_workers_ahead
from support import tasks

ONE_RUN = """
from lakehand.engine import LocalRunner
from support import tasks
with LocalRunner(parallelism=1) as runner:
    [outcome] = runner.run(tasks.double, [{"number": 1}])
print(outcome.result["pid"])
"""


@pytest.fixture(autouse=True)
def no_workers_of_others():
    end_idle_workers()
    yield
    end_idle_workers()


def run_one(function=tasks.double, **payload) -> dict:
    with LocalRunner(parallelism=1) as runner:
        [outcome] = runner.run(function, [{"number": 1, **payload}])
    assert outcome.failure is None, outcome.failure
    assert outcome.attempts == 1
    return outcome.result


def ends_soon(pid: int) -> bool:
    return happens_soon(lambda: not is_alive(pid))


def happens_soon(happened) -> bool:
    deadline = time.monotonic() + 100
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(happened())


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def new_children():
    """Return a function for the processes that were started since."""
    there = psutil.Process().children()
    return lambda: [child for child in psutil.Process().children() if child not in there]


def test_the_next_run_has_the_worker_of_the_last_one():
    assert run_one()["pid"] == run_one()["pid"]


def test_a_worker_started_ahead_has_loaded_what_its_first_task_needs(new_children):
    start_workers_ahead(["lakehand.prove.digest"])
    start_workers_ahead(["lakehand.prove.digest"])
    [worker] = new_children()

    found = run_one(tasks.tell_loaded, module="lakehand.prove.digest")

    assert found == {"pid": worker.pid, "is_loaded": True}
    assert new_children() == [worker]


def test_a_module_that_is_not_there_keeps_no_worker_from_its_task():
    start_workers_ahead(["lakehand.nowhere"])

    assert run_one()["doubled"] == 2


def test_workers_that_wait_end_at_once(new_children):
    start_workers_ahead(["lakehand.rewrite.task"])
    [worker] = new_children()
    end_idle_workers()

    assert not is_alive(worker.pid)


def test_two_runs_at_a_time_have_workers_of_their_own():
    with LocalRunner(parallelism=1) as one, LocalRunner(parallelism=1) as other:
        found = {
            runner.run(tasks.double, [{"number": 1}])[0].result["pid"] for runner in (one, other)
        }
    assert len(found) == 2


def test_a_worker_that_died_meanwhile_is_replaced():
    first = run_one()["pid"]
    os.kill(first, signal.SIGKILL)
    assert ends_soon(first)

    assert run_one()["pid"] != first


def test_a_worker_sees_the_surroundings_of_the_run(monkeypatch, tmp_path):
    first = run_one(tasks.tell_surroundings, name="LAKEHAND_TEST")
    monkeypatch.setenv("LAKEHAND_TEST", "new")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    second = run_one(tasks.tell_surroundings, name="LAKEHAND_TEST")

    assert first["pid"] == second["pid"]
    assert first["value"] is None
    assert second["value"] == "new"
    assert second["directory"] == second["temporary"] == str(tmp_path)


def test_other_code_is_loaded_by_another_worker(monkeypatch, tmp_path):
    first = run_one()["pid"]
    monkeypatch.syspath_prepend(str(tmp_path))

    assert run_one()["pid"] != first


def test_no_listener_of_an_earlier_run_is_left():
    assert not run_one(tasks.listen_to_steps)["was_listening"]
    assert not run_one(tasks.listen_to_steps)["was_listening"]


def test_workers_end_with_their_driver():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", ONE_RUN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert ends_soon(int(done.stdout))


def test_a_worker_that_waits_in_vain_ends(monkeypatch):
    program = "from lakehand.engine import worker; worker._PARKED_SECONDS = 0.2; worker.main({})"
    monkeypatch.setattr("lakehand.engine.local_worker._PROGRAM", program)

    first = run_one()["pid"]
    assert ends_soon(first)
    assert run_one()["pid"] != first


WAITING = """
import sys
from lakehand.engine import LocalRunner
from support import tasks
LocalRunner(parallelism=1).run(tasks.wait_with_files, [{"folder": sys.argv[1]}])
"""


@pytest.mark.parametrize("killed_by", [signal.SIGINT, signal.SIGKILL])
def test_a_worker_that_nobody_waits_for_leaves_no_files(tmp_path, killed_by):
    driver = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    assert happens_soon(lambda: list(tmp_path.rglob("file")))
    driver.send_signal(killed_by)
    driver.wait()

    assert happens_soon(lambda: not list(tmp_path.iterdir()))


def test_a_worker_whose_driver_was_killed_prints_nothing():
    program = (
        "from lakehand.engine import worker\n"
        "def main(descriptor): raise BrokenPipeError(descriptor)\n"
        "worker.main = main\n"
        "worker.run_worker(0)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
