"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import lakehand

ROOT = Path(lakehand.__file__).parent
WITH_EXAMPLES = [
    ".".join(("lakehand", *path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted(ROOT.rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_hold(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
