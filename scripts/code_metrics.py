"""Print how easy the source is to navigate: modules, imports, and what a call enters.

`--check` fails if a number exceeds its limit; `make check` runs it. `--trace` also runs four calls
on a small table and counts the modules, functions and stack frames of lakehand that each enters.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

SOURCE = Path(__file__).resolve().parents[1] / "src" / "lakehand"
#: Names of the protocols that every format implements, and of those that a format may implement.
CORE = re.compile(r"Format|.*Core$")
OPTIONAL = re.compile(r"Supports")
#: A setting that is read by its name. Assignments are entries of a dictionary of that name.
_LOOKUP = re.compile(r"""settings\[["']\w+["']\](?! =[^=])""")


@dataclass(frozen=True, slots=True)
class Metric:
    """A number about the source, the most that it may be, and the goal."""

    name: str
    value: float
    limit: float
    goal: str


#: For each number its limit and its goal. A limit is lowered when the code improves; raising one
#: needs a reason in the commit message.
LIMITS = {
    "modules": (402, "340 to 370"),
    "lines": (86_400, "about 62,000"),
    "modules imported by exactly one other": (84, "under 80"),
    "import lines and __all__, percent of lines": (8.2, "under 8"),
    "core methods of the format protocols": (25, "about 20"),
    "optional methods of the format protocols": (61, "none"),
    "file names used twice or more": (17, "under 20"),
    'look-ups settings["..."]': (0, "0"),
}


#: Packages around the operations on one table: they grow with what they offer, and are not part
#: of the modules and lines that have a limit.
AROUND = frozenset({"catalogs", "service", "sql", "web"})


def metrics(source: Path = SOURCE) -> list[Metric]:
    """Measure every number that has a limit."""
    texts = {path: path.read_text() for path in sorted(source.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    inner = {path: text for path, text in texts.items() if not _is_around(source, path)}
    imports = sum(map(_import_lines, trees.values()))
    values = {
        "modules": len(inner),
        "lines": sum(text.count("\n") for text in inner.values()),
        "modules imported by exactly one other": _imported_once(source, trees),
        "import lines and __all__, percent of lines": round(100 * imports / lines, 1),
        "core methods of the format protocols": _protocol_methods(source, CORE),
        "optional methods of the format protocols": _protocol_methods(source, OPTIONAL),
        "file names used twice or more": _repeated_names(trees),
        'look-ups settings["..."]': sum(len(_LOOKUP.findall(text)) for text in texts.values()),
    }
    return [Metric(name, values[name], *LIMITS[name]) for name in LIMITS]


def _is_around(source: Path, path: Path) -> bool:
    return path.relative_to(source).parts[0] in AROUND


def median_lines(source: Path = SOURCE) -> float:
    """Return the median length of a module in lines, `__init__` modules included."""
    return statistics.median(path.read_text().count("\n") for path in source.rglob("*.py"))


def _module_name(source: Path, path: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_once(source: Path, trees: dict[Path, ast.Module]) -> int:
    """Count the modules that exactly one other imports, those of `AROUND` aside."""
    names = {_module_name(source, path) for path in trees}
    counted = {_module_name(source, path) for path in trees if not _is_around(source, path)}
    importers: dict[str, set[str]] = {name: set() for name in names}
    for path, tree in trees.items():
        imported = _imports(tree) & names
        # `from package import module` imports the module; the package is only on its way.
        parents = {name.rpartition(".")[0] for name in imported}
        for name in imported - parents:
            importers[name].add(_module_name(source, path))
    return sum(len(importers[name] - {name}) == 1 for name in counted)


def _imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _import_lines(tree: ast.Module) -> int:
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Assign) and _is_all(node))
    ]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


def _is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _protocol_methods(source: Path, name: re.Pattern[str]) -> int:
    """Count the methods and properties of the protocols in `formats/` whose names match."""
    classes = [
        node
        for path in sorted((source / "formats").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and name.match(node.name) and _is_protocol(node)
    ]
    return sum(isinstance(member, ast.FunctionDef) for node in classes for member in node.body)


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def _repeated_names(trees: dict[Path, ast.Module]) -> int:
    counts = Counter(path.name for path in trees if path.name != "__init__.py")
    return sum(count > 1 for count in counts.values())


@dataclass(frozen=True, slots=True)
class Trace:
    """What one call entered: modules and functions of lakehand, and its deepest stack of them."""

    modules: int
    functions: int
    frames: int


def trace(call: Callable[[], Any]) -> Trace:
    """Run `call` and count what it enters, threads that it starts included."""
    entered: set[tuple[str, str]] = set()
    depths: Counter[int] = Counter()
    deepest = 0
    root = str(SOURCE)

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal deepest
        if event not in {"call", "return"} or not frame.f_code.co_filename.startswith(root):
            return
        thread = threading.get_ident()
        if event == "return":
            depths[thread] -= 1
            return
        depths[thread] += 1
        deepest = max(deepest, depths[thread])
        entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Trace(len({module for module, _ in entered}), len(entered), deepest)


def traces() -> dict[str, Trace]:
    """Trace four calls on a table of six small files, after the same calls have warmed up."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as directory:
            found = _trace_calls(directory)
    return found


def _trace_calls(directory: str) -> dict[str, Trace]:
    import pyarrow as pa

    import lakehand
    from lakehand import engine
    from lakehand.engine.inline import InlineRunner

    # Tasks run in this process, so that they are counted too.
    engine.LocalRunner = InlineRunner  # type: ignore[assignment,misc]
    rows = pa.table({"id": pa.array(range(100)), "name": ["x"] * 100})
    table = lakehand.create_table(directory, rows.schema)
    for _ in range(5):
        table.append(rows)
    return {
        "append": trace(lambda: table.append(rows)),
        "compact": trace(lambda: table.compact(min_files=2)),
        "upsert": trace(lambda: table.upsert(rows, key=["id"])),
        "vacuum": trace(lambda: table.vacuum(dry_run=True)),
    }


def exceeded(measured: Sequence[Metric]) -> list[str]:
    """Return one line per number above its limit."""
    return [f"{m.name}: {m.value:,} > {m.limit:,}" for m in measured if m.value > m.limit]


def main(options: Sequence[str] | None = None, source: Path = SOURCE) -> int:
    """Print the numbers; return 1 if `--check` finds one above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    parser.add_argument("--trace", action="store_true", help="also trace four calls")
    arguments = parser.parse_args(options)
    measured = metrics(source)
    for metric in measured:
        print(f"{metric.name:45} {metric.value:>9,}  limit {metric.limit:>7,}  goal {metric.goal}")
    print(f"{'median lines of a module':45} {median_lines(source):>9,.0f}  goal about 170")
    around = [path for name in sorted(AROUND) for path in (source / name).rglob("*.py")]
    lines = sum(path.read_text().count("\n") for path in around)
    print(f"{', '.join(sorted(AROUND))}: {len(around)} more modules, {lines:,} more lines")
    if arguments.trace:
        for name, seen in traces().items():
            print(f"{name}: {seen.modules} modules, {seen.functions} functions, {seen.frames} deep")
    worse = exceeded(measured)
    if arguments.check and worse:
        print("Limits of scripts/code_metrics.py exceeded:", *worse, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
