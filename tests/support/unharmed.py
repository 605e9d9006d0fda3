"""What must hold after every fault: all rows, and no file that nobody accounts for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.runs import Run, list_runs
from support.compactions import open_table
from support.rows import assert_same_rows, lakehand_rows
from support.small_tables import read_sorted

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def live_files(place: Path) -> set[str]:
    return set(open_table(str(place)).snapshot().files["path"].to_pylist())


def staged_files(place: Path) -> set[str]:
    """Return what lakehand wrote and the table does not refer to, half-written files included."""
    found = {path.relative_to(place).as_posix() for path in place.rglob("*lakehand-*")}
    return {path for path in found if not path.startswith("_lakehand/")} - live_files(place)


def files_in_ledgers(place: Path) -> set[str]:
    """Return what runs that may have committed name in the table's ledgers."""
    store = open_table(str(place)).store
    fates = (fate for run_id in list_runs(store) for fate in Run(store=store, id=run_id).fates())
    return {path for fate in fates for path in fate.outputs}


def assert_unharmed(place: Path, rows: pa.Table) -> None:
    """Compare all rows, as delta-rs and as lakehand read them."""
    assert read_sorted(place).equals(rows)
    found = lakehand_rows(place)
    assert_same_rows(found, rows.select(found.column_names))


def assert_clean(place: Path) -> None:
    """Nothing is left of any run."""
    assert staged_files(place) == set()
    assert list_runs(open_table(str(place)).store) == []
