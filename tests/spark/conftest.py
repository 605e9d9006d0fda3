"""One process for each kind of runner, shared by all tests of this folder."""

from __future__ import annotations

import pytest

from support import scenarios, tasks
from support.planted_modules import plant
from support.runner_host import RunnerHost

#: What Spark's own pages show is made of these events.
EVENT_LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
SETTINGS = {
    "processes": {"engine": "local"},
    "spark": {"master": "local[2,3]"},
    "cluster": {"master": "local-cluster[2,1,1024]"},
    "connect": {"remote": "local[2,3]"},
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only_on(*kinds): runs on these kinds of runners alone")


@pytest.hookimpl(tryfirst=True)  # before cases take turns
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out runs on other kinds than those that `only_on` names.

    Not by parameters of the tests' own: pytest would then no longer keep a kind's tests together,
    and start its process again and again.
    """
    unfit = [item for item in items if _is_unfit(item)]
    items[:] = [item for item in items if not _is_unfit(item)]
    config.hook.pytest_deselected(items=unfit)


def _is_unfit(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("only_on")
    return marker is not None and item.callspec.params["kind"] not in marker.args


@pytest.fixture(scope="session", params=SETTINGS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def host(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    events = folder / "events"
    events.mkdir()
    plant(folder)
    session = {**EVENT_LOG, "spark.eventLog.dir": events.as_uri()}
    with RunnerHost(SETTINGS[kind], folder=folder, session=session) as started:
        # The first job pays for the JVM, which is slow on a busy machine.
        started.call(scenarios.run_tasks, tasks.double, [{"number": 0}], seconds=240)
        yield started
