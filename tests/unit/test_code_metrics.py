"""The numbers about the source: measured on small trees, and held against their limits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "code_metrics.py"


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("code_metrics", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules["code_metrics"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def _source(directory, **modules):
    source = directory / "lakehand"
    for name, text in modules.items():
        path = source / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source


def _measured(script, source):
    return {metric.name: metric.value for metric in script.metrics(source)}


def test_a_number_at_its_limit_passes_and_one_above_it_fails(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(script.LIMITS, "modules", (2, ""))
    source = _source(tmp_path, a="x = 1\n", b="x = 1\n")
    assert script.main(["--check"], source) == 0
    _source(tmp_path, c="x = 1\n")
    assert script.main(["--check"], source) == 1
    assert "modules: 3 > 2" in capsys.readouterr().err
    assert script.main([], source) == 0


def test_modules_with_one_importer_and_repeated_names_are_counted(script, tmp_path):
    user = "import lakehand.a.used\nfrom lakehand.a import shared\n"
    modules = {"a__used": "", "a__shared": "", "b__used": user, "c": "import lakehand.a.shared\n"}
    found = _measured(script, _source(tmp_path, **modules))
    assert found["modules imported by exactly one other"] == 1
    assert found["file names used twice or more"] == 1
    assert found["import lines and __all__, percent of lines"] == 100.0


def test_core_and_optional_methods_of_protocols_are_counted_apart(script, tmp_path):
    method = "    def {}(self): ...\n"
    text = (
        "class FormatTable(Protocol):\n" + method.format("read") + method.format("write")
        + "class SupportsTags(Protocol):\n" + method.format("tags")
        + "class FormatFacts:\n" + method.format("helper")
    )  # fmt: skip
    found = _measured(script, _source(tmp_path, formats__base=text))
    assert found["core methods of the format protocols"] == 2
    assert found["optional methods of the format protocols"] == 1


def test_settings_that_are_read_by_name_are_counted(script, tmp_path):
    text = 'a = settings["x"]\nsettings["y"] = 1\nif settings["z"] == 1: pass\n'
    found = _measured(script, _source(tmp_path, user=text))
    assert found['look-ups settings["..."]'] == 2


def test_a_trace_counts_functions_of_lakehand_and_their_depth(script):
    from lakehand.model.quantities import parse_bytes

    seen = script.trace(lambda: parse_bytes("1 MiB"))
    assert seen.modules == 1
    assert seen.functions >= seen.frames >= 1
