from __future__ import annotations

import subprocess
import sys

import pytest

import lakehand

#: What must not be loaded by `import lakehand`, nor by a command that starts no task.
HEAVY = ("pyspark", "py4j", "pandas", "lance")


def _kind(name: str) -> tuple[int, str]:
    """Order constants, then classes, then functions, each by name."""
    if name.isupper():
        return (0, name)
    return (1 if name[0].isupper() else 2, name)


def test_the_facade_is_sorted_small_and_importable():
    assert lakehand.__all__ == sorted(lakehand.__all__, key=_kind)
    assert len(lakehand.__all__) <= 30
    assert [name for name in lakehand.__all__ if not hasattr(lakehand, name)] == []


def test_the_facade_lists_its_names():
    assert set(lakehand.__all__) <= set(dir(lakehand))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'compactify'"):
        lakehand.compactify  # noqa: B018


def test_import_loads_nothing_heavy():
    program = "import lakehand, sys; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    unwanted = {"pyarrow", "duckdb", "obstore", "click", *HEAVY}
    assert unwanted & set(loaded) == set()
