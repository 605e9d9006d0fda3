"""One contract, every runner: local processes, local Spark, executor processes, Spark Connect."""

from __future__ import annotations

import time
from collections import Counter

import psutil
import pytest

from lakehand.engine.runner_contract import usable_cores
from lakehand.errors import WorkerMismatchError
from support import scenarios, tasks
from support.runner_host import RunnerHost

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
]

#: How often each tries a task; local-cluster has Spark's own default.
ATTEMPTS = {"processes": 3, "spark": 3, "cluster": 4, "connect": 3}
#: Cores of a task that runs alone: all of local mode, and what Spark grants on a cluster.
CORES_ALONE = {"processes": usable_cores(), "spark": 2, "cluster": 1, "connect": 2}


def numbers(count, **more):
    return [{"number": number, **more} for number in range(count)]


def test_results_come_back_in_the_order_of_the_payloads(host):
    outcomes = host.call(scenarios.run_tasks, tasks.double, numbers(7))

    assert [outcome.index for outcome in outcomes] == list(range(7))
    assert [outcome.result["doubled"] for outcome in outcomes] == [0, 2, 4, 6, 8, 10, 12]


def test_no_payloads_need_no_tasks(host):
    assert host.call(scenarios.run_tasks, tasks.double, []) == []


def test_workers_import_nothing_from_the_directory_of_their_driver(host):
    host.call(scenarios.run_tasks, tasks.double, [{"number": 1}])

    assert host.folder / "json.py" in set(host.folder.iterdir())
    assert not (host.folder / "imported").exists()


def test_every_payload_is_one_task_and_tasks_begin_in_order(host, tmp_path):
    payloads = numbers(6, folder=str(tmp_path), seconds=0.2)
    host.call(scenarios.run_tasks, tasks.note_start, payloads)

    notes = [path.name.split("-") for path in tmp_path.iterdir()]
    begun = [int(number) for number, _ in sorted(notes, key=lambda note: int(note[1]))]
    assert sorted(begun) == list(range(6))
    # Two run side by side, and the process of one of them may be slow to start.
    skipped = [set(range(number)) - set(begun[:place]) for place, number in enumerate(begun)]
    assert max(map(len, skipped)) <= 1


def test_a_task_that_runs_alone_gets_the_cores_that_would_lie_idle(host, kind):
    alone = host.call(scenarios.run_tasks, tasks.tell_cores, [{}])
    crowded = host.call(scenarios.run_tasks, tasks.tell_cores, [{}] * 3 * usable_cores())

    assert [outcome.result["cores"] for outcome in alone] == [CORES_ALONE[kind]]
    assert {outcome.result["cores"] for outcome in crowded} == {1}


@pytest.mark.only_on("spark", "cluster")
def test_spark_of_our_own_on_one_machine_is_quick_to_start_workers_and_compiles_little(host):
    (outcome,) = host.call(scenarios.run_tasks, tasks.tell_loaded, [{"module": "duckdb"}])

    daemon, java = psutil.Process(outcome.result["pid"]).parents()[:2]
    assert outcome.result["is_loaded"]
    assert "lakehand.engine.spark_daemon" in daemon.cmdline()
    assert "-XX:TieredStopAtLevel=1" in java.cmdline()


def test_a_typed_failure_is_returned_at_once_and_the_others_go_on(host):
    outcomes = host.call(scenarios.run_tasks, tasks.refuse_odd_numbers, numbers(3))

    assert [outcome.failure is None for outcome in outcomes] == [True, False, True]
    assert outcomes[1].failure["code"] == "REFUSED"
    assert outcomes[1].failure["feature"] == "odd"
    assert outcomes[1].attempts == 1


def test_an_unforeseen_error_is_tried_again(host, tmp_path):
    payloads = numbers(2, folder=str(tmp_path), succeeds_at=2)
    outcomes = host.call(scenarios.run_tasks, tasks.fail_until, payloads)

    assert [outcome.result for outcome in outcomes] == [{"attempts": 2}, {"attempts": 2}]


def test_an_error_that_stays_fails_its_own_task_only(host, kind, tmp_path):
    bad = {"number": 1, "folder": str(tmp_path), "succeeds_at": 99}
    good = {"number": 2, "folder": str(tmp_path), "succeeds_at": 1}
    outcomes = host.call(scenarios.run_tasks, tasks.fail_until, [bad, good])

    assert outcomes[0].failure["code"] == "TASK_FAILED"
    assert "ZeroDivisionError" in outcomes[0].failure["message"]
    assert outcomes[0].attempts == ATTEMPTS[kind] == len(list((tmp_path / "1").iterdir()))
    assert outcomes[1].result == {"attempts": 1}


def test_a_result_that_is_not_json_is_an_error_of_its_task(host):
    outcomes = host.call(scenarios.run_tasks, tasks.return_a_set, [{}])

    assert "not JSON serializable" in outcomes[0].failure["message"]


def test_a_task_whose_process_died_is_tried_in_another(host, tmp_path):
    payloads = numbers(2, folder=str(tmp_path), succeeds_at=2)
    outcomes = host.call(scenarios.run_tasks, tasks.die_until, payloads)

    assert [outcome.result for outcome in outcomes] == [{"attempts": 2}, {"attempts": 2}]


def test_results_in_the_ledger_survive_a_task_that_always_dies(host, tmp_path):
    outcomes = host.call(scenarios.lose_a_worker_for_good, str(tmp_path))

    assert outcomes[0].result["group"] == 7
    assert outcomes[1].failure["code"] == "TASK_FAILED"


def test_progress_is_known_while_other_tasks_still_run(host, tmp_path):
    assert host.call(scenarios.follow_the_ledger, str(tmp_path)) == [0, 1]


def test_progress_tells_every_outcome_once(host):
    seen = host.call(scenarios.collect_progress, tasks.refuse_odd_numbers, numbers(4))

    assert Counter(outcome.index for outcome in seen) == Counter(range(4))


def test_cancelling_stops_the_tasks_soon(host, tmp_path):
    seconds = host.call(scenarios.cancel_long_tasks, str(tmp_path))

    assert seconds < 60
    assert host.call(scenarios.run_tasks, tasks.double, numbers(1))[0].result["doubled"] == 0


def test_raising_from_the_progress_callback_stops_the_tasks(host, tmp_path):
    assert host.call(scenarios.interrupt_from_progress, str(tmp_path)) != []


@pytest.mark.only_on("spark", "cluster", "connect")
def test_a_secret_reaches_the_task_and_nothing_that_spark_shows(host):
    secret = "AKIA-very-secret-key"
    plan, shipped, length = host.call(scenarios.explain_secret_work, secret)

    assert length == len(secret)
    assert "MapInArrow" in plan
    events = b"".join(path.read_bytes() for path in host.folder.rglob("events/*"))
    assert b"SparkListenerTaskEnd" in events
    for shown in (plan.encode(), shipped, events, host.log().encode()):
        assert secret.encode() not in shown


@pytest.mark.only_on("spark", "cluster", "connect")
def test_a_session_of_the_user_is_used_and_not_stopped(host):
    assert host.call(scenarios.use_a_session_of_the_user) == (42, 3)


@pytest.mark.only_on("spark")
def test_a_job_has_the_session_of_an_earlier_one(host):
    assert host.call(scenarios.sessions_after_runs, 3) == [1, 1, 1]


@pytest.mark.only_on("cluster")
def test_two_executors_share_the_tasks(host):
    outcomes = host.call(scenarios.run_tasks, tasks.describe_process, [{"seconds": 1}] * 4)

    assert len({outcome.result["java"] for outcome in outcomes}) == 2


@pytest.mark.only_on("cluster")
def test_the_task_of_an_executor_that_died_is_finished_by_another(host, tmp_path):
    payloads = numbers(1, folder=str(tmp_path), succeeds_at=2)
    outcomes = host.call(scenarios.run_tasks, tasks.kill_executor_until, payloads)

    assert outcomes[0].result["attempts"] == 2
    assert len({path.read_text() for path in (tmp_path / "0").iterdir()}) == 2


# The last one of a kind: it ends the session.
@pytest.mark.only_on("spark", "cluster", "connect")
def test_a_session_that_the_runner_started_is_closed(host):
    is_active, is_refused = host.call(scenarios.close_and_ask_for_session)

    assert not is_active
    assert is_refused, "a task on a stopped session"


def test_an_executor_with_another_lakehand_is_named_with_the_remedy(tmp_path):
    package = tmp_path / "lib" / "lakehand"
    package.mkdir(parents=True)
    fresh = {"spark.python.worker.reuse": "false"}
    lib = str(package.parent)
    with RunnerHost({"engine": "spark"}, folder=tmp_path, session=fresh, worker_path=lib) as host:
        host.call(scenarios.open_a_session_as_users_do, seconds=240)
        for source, found in (("__version__ = '0.0.9'", "0.0.9"), ("raise ImportError", "none")):
            (package / "__init__.py").write_text(source)

            with pytest.raises(WorkerMismatchError, match=f"has lakehand {found} on") as caught:
                host.call(scenarios.run_tasks, tasks.double, numbers(1), seconds=240)

            assert "install lakehand==" in caught.value.hint


@pytest.mark.soak
def test_a_python_without_our_lakehand_is_named_where_the_session_is_ours(tmp_path):
    package = tmp_path / "lib" / "lakehand"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    lib = str(package.parent)
    with RunnerHost({"master": "local[1]"}, folder=tmp_path, worker_path=lib) as host:
        with pytest.raises(WorkerMismatchError, match=r"lacks lakehand\.engine") as caught:
            host.call(scenarios.run_tasks, tasks.double, numbers(1), seconds=240)

        assert "install lakehand==" in caught.value.hint


def test_a_driver_that_is_killed_leaves_no_worker_behind(tmp_path):
    with RunnerHost({"engine": "local"}, folder=tmp_path) as host:
        work = [{"number": 0, "folder": str(tmp_path / "notes"), "seconds": 600}]
        (tmp_path / "notes").mkdir()
        host.begin(scenarios.run_tasks, tasks.note_start, work)
        while not list((tmp_path / "notes").iterdir()):
            time.sleep(0.05)

        gone, alive = psutil.wait_procs(host.kill(), timeout=120)
    assert gone
    assert not alive
