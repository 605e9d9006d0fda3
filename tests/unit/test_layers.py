"""Imports point one way, and words of one format stay in its adapter."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakehand

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping

ROOT = Path(lakehand.__file__).parent

#: Packages, from the lowest layer up. A package imports from its own layer and from those below.
LAYERS = (
    ("_version", "model", "errors", "settings", "observe"),
    ("temporary",),
    ("duckdb_pool",),
    ("expressions", "storage", "parquet", "prove"),
    ("schema", "catalogs"),
    ("formats", "planning"),
    ("engine", "runs"),
    ("sorting",),
    ("rewrite", "rows", "retention", "assess"),
    ("maintenance",),
    ("sink", "hot"),
    ("spark",),
    ("table", "testing"),
    ("service",),
    ("sql", "cli", "web"),
)
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
#: The same inside of each adapter, for imports that run. A module that is named here is in that
#: layer, and not in that of its package.
ADAPTER_LAYERS = {
    "formats/delta": (
        ("protocol",),
        ("log.short_log",),
        ("log.log_source", "read.projection"),
        ("statistics.bounds", "statistics.merge"),
        ("checkpoints.files", "checkpoints.last_checkpoint", "checkpoints.checkpoint_rows"),
        ("log",),
        ("statistics",),
        ("deletion_vectors",),
        ("read",),
        ("write", "statistics.written"),
        ("checkpoints", "commits"),
        ("retention",),
        ("repair",),
        ("worker",),
        ("table",),
    ),
    "formats/lance": (
        ("connect",),
        ("protocol", "comparable_types", "commit_records", "deletions", "fragments", "reading"),
        ("dataset_cache", "prefetch"),
        ("snapshot", "staged"),
        ("history", "rewriting"),
        ("writing", "row_commits"),
        ("checks", "commit", "retention"),
        ("repair",),
        ("worker",),
        ("table",),
    ),
}
MODULES = sorted(ROOT.rglob("*.py"))
#: All but `__init__` and `__main__`, which are above all layers.
LAYERED = [module for module in MODULES if not module.relative_to(ROOT).parts[0].startswith("__")]

#: The facade: its documentation is what an editor shows, and one class is easier to find than nine.
#: The generated module has one entry per setting, the tree of errors one class per error.
LONG = ("table.py", "settings/setting_types.py", "errors.py")
#: Words that only the adapter of the format knows.
DELTA_WORDS = re.compile(
    r"_delta_log|commitInfo|dataChange|deletionVector|partitionValues|numRecords|baseRowId"
    r"|minReaderVersion|_last_checkpoint|add action|remove action"
)


def _name(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def _package(module: Path) -> str:
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


def _packages_used(module: Path) -> set[str]:
    names = {name.split(".")[1] for name in _imports(module) if name.startswith("lakehand.")}
    return (names & LAYER_OF.keys()) - {_package(module)}


def test_every_package_has_a_layer():
    assert {_package(module) for module in LAYERED} <= LAYER_OF.keys()


def test_imports_point_down():
    def packages_above(module):
        own = LAYER_OF[_package(module)]
        return (package for package in _packages_used(module) if LAYER_OF[package] > own)

    assert _offences(packages_above, LAYERED) == {}


def test_packages_of_one_layer_do_not_import_each_other_in_a_circle():
    uses = {(_package(module), used) for module in LAYERED for used in _packages_used(module)}
    assert {pair for pair in uses if pair[::-1] in uses} == set()


def _statements(body: list[ast.stmt], *, is_late: bool) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported; of functions too if `is_late`."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _statements(node.orelse, is_late=is_late)
        elif is_late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []), is_late=is_late)
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body, is_late=is_late)


def _dotted(module: Path) -> str:
    """Return the module's name as it is imported."""
    return ".".join((ROOT.name, *module.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def _imported_modules(tree: ast.Module, names: Container[str], *, is_late: bool) -> set[str]:
    """Return which of `names` a module imports when it runs; types are no imports that run."""
    found: set[str] = set()
    for node in _statements(tree.body, is_late=is_late):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in names else node.module for name in inner}
    return {name for name in found if name in names}


def _circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other: what is left when ends are taken away."""
    rest = {node: set(used) & graph.keys() for node, used in graph.items()}
    while ends := {node for node, used in rest.items() if not used & rest.keys()}:
        rest = {node: used for node, used in rest.items() if node not in ends}
    circles = {frozenset(_reached(rest, node) & _reaching(rest, node)) for node in rest}
    return sorted(sorted(circle) for circle in circles if circle)


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = [node for node in graph.get(waiting.pop(), ()) if node not in found]
        found.update(new)
        waiting += new
    return found


def _reaching(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    return {node for node in graph if start in _reached(graph, node)}


def test_a_circle_of_three_modules_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert _circles(graph) == [["a", "b", "c"]]
    assert _circles({**graph, "c": {"d"}}) == []
    assert _circles({"a": {"a"}}) == [["a"]]


def test_imports_for_types_and_late_ones_make_no_circle():
    text = (
        "import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\n"
        "def f():\n    import d\ntry:\n    import e\nexcept ImportError:\n    from g import h\n"
    )
    names = {*"abcdeg", "g.h"}
    assert _imported_modules(ast.parse(text), names, is_late=False) == {"a", "c", "e", "g.h"}
    assert _imported_modules(ast.parse(text), names, is_late=True) == {"a", "c", "d", "e", "g.h"}


def test_no_modules_import_each_other_in_a_circle_of_any_length():
    modules = {_dotted(module): module for module in MODULES}
    graph = {
        name: _imported_modules(_tree(module), modules.keys(), is_late=False)
        for name, module in modules.items()
    }
    assert _circles(graph) == []


@pytest.mark.parametrize("adapter", ADAPTER_LAYERS)
def test_imports_point_down_inside_an_adapter(adapter):
    prefix = f"{ROOT.name}.{adapter.replace('/', '.')}."
    layers = ADAPTER_LAYERS[adapter]
    layer_of = {f"{prefix}{name}": n for n, names in enumerate(layers) for name in names}

    def layer(name):
        parts = [name.rsplit(".", dots)[0] for dots in range(name.count("."))]
        return next(layer_of[part] for part in parts if part in layer_of)

    def modules_above(module):
        used = _imported_modules(_tree(module), names, is_late=True)
        own = layer(_dotted(module))
        return (name for name in used if name.startswith(prefix) and layer(name) > own)

    names = {_dotted(module) for module in MODULES}
    inside = [module for module in MODULES if _dotted(module).startswith(prefix)]
    assert _offences(modules_above, inside) == {}
    assert [name for name in layer_of if name not in names] == []


def test_only_the_engine_and_the_data_source_know_spark():
    others = [module for module in MODULES if _package(module) not in {"engine", "spark"}]
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
