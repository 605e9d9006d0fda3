"""The simulator of scheduling: small runs, and its arrays against the real job store."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "simulate_scheduling.py"


@pytest.fixture(scope="module")
def simulator():
    spec = importlib.util.spec_from_file_location("simulate_scheduling", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def run(simulator, trace, order, *, hours=2.0, seed=1, **changes):
    traced = replace(simulator.TRACES[trace], hours=hours, **changes)
    one = simulator.Simulation(
        traced, simulator.ORDERS[order], tables=30, workers=2, seed=seed, store=False
    )
    return one.run(), one


@pytest.mark.parametrize("trace", ["stationary_125", "dying_workers", "huge_table", "windows"])
def test_the_job_store_gives_the_same_order_as_the_arrays(simulator, trace, monkeypatch):
    monkeypatch.setattr(simulator, "OVERDUE_SECONDS", 120.0)
    options = {"tables": 20, "workers": 2, "seed": 3}
    traced = replace(simulator.TRACES[trace], hours=0.4)
    order = simulator.ORDERS["lakehand"]
    arrays = simulator.Simulation(traced, order, **options).run()
    stored = simulator.Simulation(traced, order, **options, store=True).run()
    assert stored["jobs"] > 10
    assert stored == pytest.approx(arrays, rel=1e-6, abs=1e-3)


def test_files_are_neither_lost_nor_made(simulator):
    result, one = run(simulator, "stationary_125", "lakehand")
    lake = one.lake
    written = lake.rate * lake.trace.hours * 3600 * lake.file_bytes
    start = simulator.Lake(lake.trace, 30, 2, 1).bytes_of_files
    left = lake.bytes_of_files.sum()
    assert (start + written).sum() == pytest.approx(left + result["tib_rewritten"] * 2**40)
    assert (lake.files > -1e-6).all()


def test_pure_benefit_starves_tables_that_others_do_not(simulator):
    greedy, _ = run(simulator, "stationary_125", "benefit/cost", hours=12.0, load=2.0)
    own, _ = run(simulator, "stationary_125", "lakehand", hours=12.0, load=2.0)
    oldest, _ = run(simulator, "stationary_125", "oldest first", hours=12.0, load=2.0)
    assert own["longest_wait_hours"] < greedy["longest_wait_hours"]
    assert own["read_cost"] <= 1.1 * greedy["read_cost"] < oldest["read_cost"]


def test_all_waits_are_short_at_a_load_that_the_workers_can_do(simulator):
    result, _ = run(simulator, "stationary_80", "lakehand", hours=6.0)
    assert result["longest_wait_hours"] < 2.0


def test_a_budget_of_bytes_is_not_exceeded(simulator):
    limits = {"budget": {"all": {"bytes_per_day": "20GiB"}}}
    result, one = run(simulator, "budget", "lakehand", hours=4.0, config=limits)
    assert 0.5 < result["most_of_a_budget"] <= 1.0 + 1e-9
    assert result["tib_rewritten"] * 2**40 <= 20 * 2**30 * (1 + 1e-6)
    assert one.queue.waiting.any()


def test_no_job_starts_while_its_window_is_closed(simulator):
    result, _ = run(simulator, "windows", "lakehand", hours=8.0)
    assert result["jobs"] > 0
    assert result["longest_wait_hours"] >= 2.9, "a table that is due at 03:00 waits until 06:00"


def test_the_scores_of_a_rival_are_those_of_the_service(simulator):
    lake = simulator.Lake(simulator.TRACES["stationary_125"], 30, 2, 5)
    lake.files[:] = np.floor(lake.files + 20)
    lake.bytes_of_files[:] = lake.files * lake.file_bytes
    queue = simulator.ArrayQueue(lake, simulator.ORDERS["benefit/cost"], 5)
    rival = queue._value(np.arange(30))
    own = [lake.score(table).score for table in range(30)]
    assert np.corrcoef(rival, own)[0, 1] > 0.99
