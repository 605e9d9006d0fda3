"""Results of statements on a screen: as the commands show theirs, and rows as a table."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_list, print_screen
from lakehand.cli.screen import figures_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from rich.console import RenderableType

    from lakehand.sql.results import SqlResult

#: The screen of each report: the module of the command, which is imported when it is needed.
_SCREENS: Mapping[str, tuple[str, str]] = {
    "OperationReport": ("compact", "operation_screen"),
    "ClusterReport": ("cluster", "cluster_screen"),
    "StatisticsReport": ("statistics", "statistics_screen"),
    "VacuumReport": ("vacuum", "vacuum_screen"),
    "PurgeReport": ("purge", "purge_screen"),
    "CheckpointReport": ("checkpoint", "checkpoint_screen"),
    "Verification": ("verify", "verification_screen"),
    "RepairReport": ("repair", "repair_screen"),
    "MaintenanceReport": ("maintain", "maintenance_screen"),
    "DeduplicationReport": ("delete", "deletion_screen"),
    "RestoreReport": ("restore", "restore_screen"),
    "PropertiesReport": ("properties", "change_screen"),
    "Plan": ("plan", "plan_screen"),
}
#: Screens of the service, which say how long ago something was.
_SERVICE_SCREENS: Mapping[str, tuple[str, str]] = {
    "JobEntry": ("jobs", "changed_job_screen"),
    "TableEntry": ("tables", "changed_table_screen"),
    "Explanation": ("tables", "explain_screen"),
}
#: Columns that are drawn of statements with very many; other formats and `\x` have all of them.
_DRAWN: Mapping[str, tuple[str, ...]] = {
    "show jobs": ("id", "table", "verb", "state", "asked_by", "queued_at", "ended_at", "outcome"),
    "show tables": ("id", "name", "url", "format", "policy", "version", "health_score"),
    "show workers": ("id", "host", "pid", "pools", "slots", "started_at"),
    "show settings": ("name", "value", "source", "help"),
    "describe history": ("version", "timestamp", "operation", "summary"),
}
#: Values longer than this are cut on a screen; other formats have them whole.
_SHOWN_CHARACTERS = 200
#: Width that a column needs to be read, and lines between two columns.
_READABLE, _BETWEEN = 16, 3
_TO_SECONDS = len("2026-01-02 03:04:05")


def print_result_screen(result: SqlResult, *, is_vertical: bool = False) -> None:
    """Print the screen of a result; `is_vertical`: one line per value of a row."""
    if result.rows is None:
        print_screen(*_report_screen(result))
    else:
        _print_rows(result, is_vertical=is_vertical)


def _report_screen(result: SqlResult) -> Iterable[RenderableType]:
    kind = type(result.value).__name__
    if kind in _SCREENS:
        return _screen(_SCREENS[kind])(result.value)
    return _screen(_SERVICE_SCREENS[kind])(result.value, time.time())


def _screen(place: tuple[str, str]) -> Callable[..., Iterable[RenderableType]]:
    module, name = place
    found: Callable[..., Iterable[RenderableType]] = getattr(
        importlib.import_module(f"lakehand.cli.{module}"), name
    )
    return found


def _print_rows(result: SqlResult, *, is_vertical: bool) -> None:
    table = result.to_arrow()
    names = [name for name in _DRAWN.get(result.statement, ()) if name in table.column_names]
    if is_vertical or not names:
        names = table.column_names
    left_out = len(table.column_names) - len(names)
    types = {name: table.schema.field(name).type for name in names}
    cells = [[_cell(row[name], types[name]) for name in names] for row in result.to_pylist()]
    if is_vertical or _is_too_wide(names, cells):
        for number, row in enumerate(cells):
            if len(cells) > 1:
                print_screen(Text(f"row {number + 1}", style="dim"))
            print_screen(figures_grid(zip(names, row, strict=True)))
    else:
        print_list(_grid(types, cells))
    print_screen(Text(_count(result, len(cells), left_out), style="dim"))


def _grid(types: Mapping[str, pa.DataType], cells: Sequence[Sequence[str]]) -> Grid:
    grid = Grid(box=box.ROUNDED, header_style="bold")
    for name, kind in types.items():
        is_number = str(kind).startswith(("int", "uint", "float", "double", "decimal"))
        grid.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _is_too_wide(names: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    """Whether columns would have to be so narrow on this terminal that nobody can read them."""
    if not (sys.stdout.isatty() and cells):
        return False
    widths = [
        min(_READABLE, max(len(name), *(len(row[place]) for row in cells)))
        for place, name in enumerate(names)
    ]
    return sum(widths) + _BETWEEN * len(widths) + 1 > shutil.get_terminal_size().columns


def _count(result: SqlResult, count: int, left_out: int) -> str:
    rows = f"{count:,} row{'' if count == 1 else 's'}"
    if result.truncated:
        rows += "; there are more, which LIMIT and WHERE choose from"
    if left_out:
        columns = f"{left_out} more column{'' if left_out == 1 else 's'}"
        rows += f"; {columns} with --json, SELECT or \\x"
    return rows


def _cell(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "-"
    if str(kind).startswith("timestamp"):
        return str(value).replace("T", " ")[:_TO_SECONDS]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"
