"""The examples for orchestrators call lakehand as they should. The orchestrators are stand-ins."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import lakehand
from support.small_tables import make_table

EXAMPLES = Path(__file__).parents[2] / "examples"


class StandIn(ModuleType):
    """A module whose decorators return what they decorate, and whose classes keep arguments."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in


def stand_in(*args, **kwargs):
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    if args or not kwargs:
        return SimpleNamespace(args=args, **kwargs)
    return Decorator(kwargs)


class Decorator(SimpleNamespace):
    """A decorator with options, or a value with attributes."""

    def __init__(self, options):
        super().__init__(**options)

    def __call__(self, function):
        return function


class FailedForGoodError(Exception):
    """Stands for AirflowFailException."""


def load(name, monkeypatch, **modules):
    for module, attributes in modules.items():
        found = StandIn(module.replace("__", "."))
        vars(found).update(attributes)
        monkeypatch.setitem(sys.modules, found.__name__, found)
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    return example


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    return make_table(tmp_path / "orders", commits=2)


class Mapped:
    """A mapped task of Airflow."""

    def __init__(self, function):
        self.function = function
        self.tables = None

    def expand(self, table):
        self.tables = table


def test_an_airflow_task_reports_and_tells_errors_apart(table, monkeypatch, tmp_path):
    example = load(
        "airflow_dag",
        monkeypatch,
        airflow={},
        airflow__exceptions={"AirflowFailException": FailedForGoodError},
        airflow__sdk={"task": lambda **_: Mapped, "dag": lambda **_: lambda function: function},
    )
    assert example.maintain.tables == example.TABLES
    assert example.maintain.function(str(table))["operation"] == "maintain"
    with pytest.raises(FailedForGoodError):
        example.maintain.function(str(tmp_path / "nothing"))


def test_a_dagster_job_and_check_run(table, monkeypatch):
    example = load("dagster_assets", monkeypatch, dagster={"Failure": RuntimeError})
    monkeypatch.setattr(example, "TABLES", {"orders": str(table)})
    said = []
    context = SimpleNamespace(log=SimpleNamespace(info=lambda *words: said.append(words)))
    example.maintain_tables(context)
    assert said[0][1] == lakehand.open_table(table).url
    assert example.orders_are_healthy().metadata["files"] == 4


def test_tables_of_dbt_models_are_maintained(table, monkeypatch, capsys):
    results = table.parent / "run_results.json"
    runs = [
        {"unique_id": "model.shop.orders", "status": "success"},
        {"unique_id": "model.shop.broken", "status": "error"},
        {"unique_id": "test.shop.orders_id", "status": "success"},
    ]
    results.write_text(json.dumps({"results": runs}))
    example = load("dbt_maintain", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["dbt", str(results), "--root", str(table.parent)])
    assert example.main() == 0
    assert capsys.readouterr().out.split()[0].endswith("/orders")
