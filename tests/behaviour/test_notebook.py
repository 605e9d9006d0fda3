"""The notebook runs from top to bottom, and shows what is stored in it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_script():
    path = ROOT / "scripts" / "run_notebook.py"
    specification = importlib.util.spec_from_file_location("run_notebook", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def shape_of(notebook):
    """Return the kinds of all outputs, and what was printed, without its numbers."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            printed = "".join(output.get("text", ()))
            yield cell["id"], sorted(output.get("data", ())), re.sub(r"\d[\d,.]*", "N", printed)


def test_the_notebook_shows_what_is_stored_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    script = load_script()
    stored = json.loads(script.NOTEBOOK.read_text())
    ran = script.run_notebook(stored, tmp_path)
    assert list(shape_of(ran)) == list(shape_of(stored))
    assert len([1 for _, kinds, _ in shape_of(ran) if "image/svg+xml" in kinds]) == 2


def test_the_notebook_names_no_place_of_a_machine():
    assert "/tmp/" not in load_script().NOTEBOOK.read_text()
