"""The tree is the architecture: imports point one way, and words stay in their rooms."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import lakehand

ROOT = Path(lakehand.__file__).parent

#: From the ground up. A room may import from its own floor and from those below.
FLOORS = (
    ("_version", "model", "errors", "settings", "observe"),
    ("duckdb_pool",),
    ("expressions", "storage", "parquet", "prove"),
    ("formats", "planning"),
    ("engine", "runs"),
    ("sorting",),
    ("rewrite", "rows", "retention", "assess"),
    ("maintenance",),
    ("sink", "hot"),
    ("table",),
    ("service",),
    ("sql", "cli", "web"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(ROOT.rglob("*.py"))
#: All but the facade and the door, which stand above the floors.
ROOMS = [module for module in MODULES if not module.relative_to(ROOT).parts[0].startswith("__")]

#: The facade: its documentation is what an editor shows, and one class is easier to find than nine.
#: The generated module has one entry per setting.
LONG = ("table.py", "settings/setting_types.py")
#: Words that only the adapter of the format knows.
DELTA_WORDS = re.compile(
    r"_delta_log|commitInfo|dataChange|deletionVector|partitionValues|numRecords|baseRowId"
    r"|minReaderVersion|_last_checkpoint|add action|remove action"
)


def _name(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def _room(module: Path) -> str:
    return module.relative_to(ROOT).parts[0].removesuffix(".py")


@functools.cache
def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@functools.cache
def _imports(module: Path) -> frozenset[str]:
    """Return every module that is imported anywhere in the file, for types or late included."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _offences(find, modules=MODULES) -> dict[str, list]:
    """Return what `find` objects to, by the name of the module."""
    found = {_name(module): sorted(find(module)) for module in modules}
    return {name: offences for name, offences in found.items() if offences}


def _rooms_used(module: Path) -> set[str]:
    names = {name.split(".")[1] for name in _imports(module) if name.startswith("lakehand.")}
    return (names & FLOOR_OF.keys()) - {_room(module)}


def test_every_room_has_a_floor():
    assert {_room(module) for module in ROOMS} <= FLOOR_OF.keys()


def test_imports_point_down():
    def rooms_above(module):
        own = FLOOR_OF[_room(module)]
        return (room for room in _rooms_used(module) if FLOOR_OF[room] > own)

    assert _offences(rooms_above, ROOMS) == {}


def test_rooms_of_one_floor_do_not_import_each_other_in_a_circle():
    uses = {(_room(module), room) for module in ROOMS for room in _rooms_used(module)}
    assert {pair for pair in uses if pair[::-1] in uses} == set()


def test_only_the_engine_knows_spark():
    others = [module for module in MODULES if _room(module) not in {"engine", "sink"}]
    spark = {"pyspark", "py4j"}
    assert _offences(lambda m: {n for n in _imports(m) if n.split(".")[0] in spark}, others) == {}


def test_words_of_one_format_stay_in_its_adapter():
    others = [module for module in MODULES if not _name(module).startswith("formats/delta/")]
    assert _offences(lambda module: DELTA_WORDS.findall(module.read_text()), others) == {}


def test_no_format_is_imported_by_name_outside_the_formats():
    others = [module for module in MODULES if not _name(module).startswith("formats/")]
    adapters = ("lakehand.formats.delta", "lakehand.formats.lance")
    assert _offences(lambda m: {n for n in _imports(m) if n.startswith(adapters)}, others) == {}


def test_a_module_is_short_enough_to_read():
    def lines_too_many(module):
        docstring = ast.get_docstring(_tree(module), clean=False) or ""
        lines = len(module.read_text().splitlines()) - len(docstring.splitlines())
        return [lines] if lines > 600 and _name(module) not in LONG else []

    assert _offences(lines_too_many) == {}


@functools.cache
def _functions(module: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.FunctionDef):
            has_docstring = ast.get_docstring(node) is not None
            body = node.body[1:] if has_docstring else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            found.append((node.name, lines))
    return found


def test_a_function_fits_on_a_screen():
    assert _offences(lambda m: [named for named in _functions(m) if named[1] > 40]) == {}


def test_functions_are_short_as_a_rule():
    lengths = sorted(lines for module in MODULES for _, lines in _functions(module))
    assert lengths[int(0.9 * len(lengths))] <= 20
