"""Run the cells of docs/notebook.ipynb in their order, and store what they show in it.

No kernel is needed: a cell's last expression is shown as Jupyter shows it, by `_repr_svg_`,
`_repr_html_` or `repr`. `--check` runs the cells and changes nothing.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebook.ipynb"


def run_notebook(notebook: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, which ran in a directory."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    with contextlib.chdir(directory):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                outputs = run_cell("".join(cell["source"]), names, number)
                shown = json.loads(json.dumps(outputs).replace(str(directory), "/data"))
                cells.append({**cell, "execution_count": number, "outputs": shown})
            else:
                cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell; return what it prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        rich = (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_"))
        data = {kind: _lines(getattr(value, name)()) for kind, name in rich if hasattr(value, name)}
        data["text/plain"] = [f"<{type(value).__name__}>"] if data else _lines(repr(value))
        shown = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append({**shown, "data": data})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> int:
    os.environ["LAKEHAND_ENGINE"] = "local"
    notebook = json.loads(NOTEBOOK.read_text())
    with tempfile.TemporaryDirectory() as directory:
        ran = run_notebook(notebook, Path(directory))
    if "--check" not in sys.argv:
        NOTEBOOK.write_text(json.dumps(ran, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
