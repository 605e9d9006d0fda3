"""What the engine decides before any task runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehand.engine import CancelToken, LocalRunner, open_runner
from lakehand.engine.inline import InlineRunner
from lakehand.engine.runner_contract import (
    CoreShare,
    describe,
    failed_for_good,
    granted_cores,
    granting,
    group_of,
    usable_cores,
)
from lakehand.engine.session import _ConnectMode, open_session
from lakehand.engine.spark import SparkRunner, _mismatch_in, attempts_of, share_of
from lakehand.engine.spark_task import headline
from lakehand.errors import CancelledError, EngineError
from lakehand.model.work import Group
from lakehand.settings import Settings


@dataclass
class Session:
    """A session that only knows its settings."""

    values: dict[str, str] = field(default_factory=dict)

    @property
    def conf(self):
        return self.values


@pytest.mark.parametrize(
    ("values", "attempts"),
    [
        ({"spark.master": "local[*]"}, 1),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[2,3]"}, 3),
        ({"spark.master": "local-cluster[2,1,1024]"}, 4),
        ({"spark.master": "spark://host:7077", "spark.task.maxFailures": "8"}, 8),
        ({}, 4),
    ],
)
def test_how_often_spark_tries_is_read_from_the_session(values, attempts):
    assert attempts_of(Session(values)) == attempts


def test_a_server_that_hides_its_settings_is_taken_to_be_a_usual_one():
    class Hidden(dict):
        def get(self, name, default):
            raise PySparkException("CONFIG_NOT_AVAILABLE")

    assert attempts_of(Session(Hidden())) == 4


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", [1, 1, 1]),
        ("local[2]", [1, 1, 2]),
        ("local[8, 3]", [3, 3, 2]),
        ("local[5,3]", [2, 2, 1]),
    ],
)
def test_tasks_share_the_cores_of_local_mode_and_the_largest_get_more(master, cores):
    share = share_of(Session({"spark.master": master}), tasks=3)

    assert [share.of_task(index) for index in range(3)] == cores


def test_all_cores_are_counted_where_the_task_runs():
    share = share_of(Session({"spark.master": "local[*,3]"}), tasks=1)

    assert share == CoreShare(tasks=1, cores=None)
    assert share.of_task(0) == usable_cores()


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://host:7077", "yarn"])
def test_on_a_cluster_nothing_is_shared_out(master):
    assert share_of(Session({"spark.master": master}), tasks=1) is None


def test_a_task_knows_its_cores_while_it_runs():
    with granting(3):
        inside = granted_cores()

    assert (inside, granted_cores()) == (3, 1)


@pytest.mark.parametrize(
    ("asked", "size", "kind"),
    [
        ({}, 10, LocalRunner),
        ({}, 11, SparkRunner),
        ({"engine": "auto"}, 10, LocalRunner),
        ({"engine": "spark"}, 0, SparkRunner),
        ({"master": "local[1]"}, 0, SparkRunner),
        ({"remote": "sc://host"}, 0, SparkRunner),
        ({"engine": "local"}, 11, LocalRunner),
        ({"engine": "local", "master": "local[1]"}, 11, LocalRunner),
    ],
)
def test_for_little_work_spark_is_only_used_if_somebody_asks_for_it(asked, size, kind):
    settings = Settings({**asked, "spark_above_bytes": 10}, environment={})
    with open_runner(settings, read_bytes=size) as runner:
        assert type(runner) is kind


@pytest.mark.parametrize(
    ("read", "moved", "kind"),
    [(0, 175, LocalRunner), (0, 176, SparkRunner), (10, 15, LocalRunner), (10, 16, SparkRunner)],
)
def test_spark_is_started_later_for_bytes_that_are_moved_as_they_are(read, moved, kind):
    settings = Settings({"spark_above_bytes": 10}, environment={})
    with open_runner(settings, read_bytes=read, moved_bytes=moved) as runner:
        assert type(runner) is kind


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_a_session_passed_in_runs_little_work_too(engine):
    settings = Settings({"engine": engine}, environment={})
    # Not in `with`: this session cannot be stopped.
    assert type(open_runner(settings, read_bytes=0, spark=Session())) is SparkRunner


def test_an_active_session_runs_little_work_unless_processes_are_asked_for(monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", Session)

    kinds = {
        engine: type(open_runner(Settings({"engine": engine}, environment={}), read_bytes=0))
        for engine in ("auto", "local")
    }

    assert kinds == {"auto": SparkRunner, "local": LocalRunner}


def test_which_engine_was_chosen_is_logged(caplog):
    caplog.set_level("INFO", "lakehand")
    open_runner(Settings(environment={}), read_bytes=2**20)

    [record] = caplog.records
    assert record.message == "Tasks that read 1 MiB run in processes of this machine"
    assert (record.event, record.fields["engine"]) == ("engine_chosen", "local")


@pytest.mark.parametrize(("engine", "runner"), [("auto", InlineRunner), ("local", LocalRunner)])
def test_little_work_runs_in_this_process_unless_processes_are_asked_for(engine, runner):
    settings = Settings({"engine": engine}, environment={})

    assert type(open_runner(settings, read_bytes=2**20, inline_bytes=2**20)) is runner
    assert type(open_runner(settings, read_bytes=2**20 + 1, inline_bytes=2**20)) is LocalRunner


@pytest.mark.parametrize(
    "payload", [Group(id=3, inputs=()).to_json(), {"group": {"id": 3}}, {"group": 3}]
)
def test_a_payload_tells_its_group(payload):
    assert group_of(payload) == 3


def test_a_payload_without_a_group_has_none():
    assert group_of({"number": 1}) is None


def test_a_token_that_was_cancelled_says_so():
    token = CancelToken()
    token.raise_if_cancelled()
    token.cancel()

    with pytest.raises(CancelledError, match="nothing was committed"):
        token.raise_if_cancelled()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ModuleNotFoundError: No module named 'pyarrow'", "an executor lacks pyarrow"),
        ("[PYTHON_VERSION_MISMATCH] 3.9 and 3.11", "another Python than the driver"),
    ],
)
def test_executors_that_cannot_compare_versions_are_recognised(text, expected):
    assert expected in str(_mismatch_in(RuntimeError(text)))


def test_other_errors_of_spark_are_no_mismatch():
    assert _mismatch_in(RuntimeError("disk full")) is None


def test_failures_name_task_attempts_and_reason():
    outcome = failed_for_good(4, describe(ValueError("bad\n  value")), attempts=1)

    assert outcome.failure["message"] == "task 4 failed once: ValueError: bad value"
    assert describe(KeyError()) == "KeyError"


def test_a_task_starts_without_what_only_some_tasks_need():
    code = "import lakehand.formats.delta.worker, lakehand.rewrite.task, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"sqlglot", "pandas", "lance", "pyspark"} & set(loaded.stdout.split())


def test_importing_the_engine_and_the_story_imports_no_pyspark():
    code = "import lakehand.engine, lakehand.rewrite.run, sys; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )

    assert done.stdout.strip() == "False"


def test_an_error_of_spark_names_the_one_of_python_behind_it():
    said = (
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "task.py", line 1, in run\n'
        "ZeroDivisionError: division by zero\n"
        "\tat org.apache.spark.Task.run"
    )

    assert headline(Exception(said)).endswith("Python worker: ZeroDivisionError: division by zero")
    assert headline(Exception("stopped\n  at java")) == "stopped"
    assert headline(Exception("calling o1.f.\n: java.E: no")) == "calling o1.f. java.E: no"
    assert headline(KeyError()) == "KeyError"


def test_a_server_that_cannot_be_reached_leaves_the_process_able_to_start_spark(monkeypatch):
    """PySpark says in the environment that the process is one of Spark Connect."""
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    before = dict(os.environ)
    with pytest.raises(EngineError):
        open_session(Settings({"remote": "sc://127.0.0.1:1/what"}))
    assert dict(os.environ) == before


def test_a_process_that_was_one_of_spark_connect_before_stays_one(monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(EngineError):
        open_session(Settings({"remote": "sc://127.0.0.1:1/what"}))
    assert os.environ["SPARK_CONNECT_MODE_ENABLED"] == "1"


class ServerSession:
    def stop(self):
        pass


def started_on_server(_builder):
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return ServerSession()


def test_a_session_that_a_caller_keeps_is_left_as_pyspark_would(monkeypatch):
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    monkeypatch.setattr("lakehand.engine.session._started", started_on_server)
    monkeypatch.setattr("lakehand.engine.session._connect_mode", _ConnectMode())
    settings = Settings({"remote": "sc://host"})
    _, end = open_session(settings)
    open_session(settings, is_kept=True)
    end()
    assert "SPARK_CONNECT_MODE_ENABLED" in os.environ
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")


def test_a_session_that_ends_leaves_one_that_the_caller_has_started(monkeypatch):
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    monkeypatch.setattr("lakehand.engine.session._started", started_on_server)
    _, end = open_session(Settings({"remote": "sc://host"}))
    monkeypatch.setattr("lakehand.engine.session._has_session_on_server", lambda: True)
    end()
    assert "SPARK_CONNECT_MODE_ENABLED" in os.environ
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")


def test_a_session_that_ends_leaves_the_sessions_of_other_threads_as_they_are(monkeypatch):
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)

    class Stoppable:
        def stop(self):
            raise ConnectionError("the server is gone")

    def started(_builder):
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        return Stoppable()

    monkeypatch.setattr("lakehand.engine.session._started", started)
    _, end_first = open_session(Settings({"remote": "sc://host"}))
    _, end_second = open_session(Settings({"remote": "sc://host"}))
    with pytest.raises(ConnectionError):
        end_first()
    assert "SPARK_CONNECT_MODE_ENABLED" in os.environ
    with pytest.raises(ConnectionError):
        end_second()
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_session_that_the_caller_keeps_compiles_and_shuffles_as_others_do(monkeypatch, is_kept):
    """Only Spark tasks of lakehand gain from a hasty compiler: it halves the speed of queries."""
    builders = []

    def started(builder):
        builders.append(builder)
        return ServerSession()

    monkeypatch.setattr("lakehand.engine.session._started", started)
    monkeypatch.setattr("lakehand.engine.session._prepare_jvm", lambda _: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)

    open_session(Settings({}), is_kept=is_kept)

    options = builders[0]._options
    assert ("TieredStopAtLevel" in str(options)) != is_kept
    assert ("spark.shuffle.compress" in options) != is_kept
    assert "-Djava.io.tmpdir=" in options["spark.driver.defaultJavaOptions"]
