"""Do what a new user does, in a fresh environment: install, learn, uninstall.

The wheel is built from this checkout and installed with the extras that the pages use. Then the
README, the tutorial with its service, every guide and the notebook run from their tops, as pasted,
with the installed package; the output of the tutorial is compared. At the end lakehand is
uninstalled, and must have left no file behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "lance,aws,service,web,metrics"
#: What runs the pages, and writes the tables that they begin with.
TOOLS = ("deltalake", "hypothesis", "pandas", "polars", "psutil", "pytest<9.2")
TOOLS += ("pytest-timeout", "pytest-xdist", "pyyaml", "urllib3")
PAGES = ("tests/behaviour/test_documented_examples.py", "tests/behaviour/test_notebook.py")
#: What pages and their tests are made of. The source is not among them.
COPIED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "docs", "examples")
COPIED += ("deploy", "scripts", "tests", "benchmarks", "Makefile")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="new-user-") as directory:
        place = Path(directory)
        with step("build the wheel"):
            wheel = build_wheel(place / "dist")
        environment = place / "environment"
        with step(f"pip install lakehand[{EXTRAS}]"):
            call(sys.executable, "-m", "venv", environment)
            pip = (environment / "bin" / "pip", "install", "--quiet")
            pinned = ("--constraint", ROOT / "constraints.txt")
            call(*pip, *pinned, f"lakehand[{EXTRAS}] @ {wheel.as_uri()}")
        size = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file())
        print(f"  {size / 1e6:,.0f} MB")
        with step("lakehand --help"):
            call(environment / "bin" / "lakehand", "--help", quiet=True)
        with step("README, tutorial, guides, service and notebook, from their tops"):
            call(*pip, *pinned, *TOOLS)
            run_pages(environment, place / "pages")
        with step("pip uninstall lakehand"):
            call(environment / "bin" / "pip", "uninstall", "--quiet", "--yes", "lakehand")
            left = [path for path in environment.rglob("*lakehand*") if "RECORD" not in path.name]
            if left:
                print("left behind:", *left, sep="\n  ")
                return 1
    return 0


@contextmanager
def step(name: str) -> Iterator[None]:
    print(f"{name} ...", flush=True)
    started = time.monotonic()
    yield
    print(f"  {time.monotonic() - started:.1f} s", flush=True)


def call(*words: object, quiet: bool = False, **options: object) -> None:
    output = subprocess.DEVNULL if quiet else None
    subprocess.run([str(word) for word in words], check=True, stdout=output, **options)


def build_wheel(place: Path) -> Path:
    program = "import hatchling.build as build, sys; build.build_wheel(sys.argv[1])"
    place.mkdir()
    call(sys.executable, "-c", program, place, cwd=ROOT)
    return next(place.glob("*.whl"))


def run_pages(environment: Path, place: Path) -> None:
    """Run the pages where there is no source of lakehand, so that the installed one is used."""
    place.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place / name)
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LAKEHAND"))}
    # Commands of the pages are those of the environment.
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables['PATH']}"
    options = ("-q", "-p", "no:cacheprovider", "--durations=3", "-m", "not soak")
    python = environment / "bin" / "python"
    call(python, "-m", "pytest", *options, *PAGES, cwd=place, env=variables)


if __name__ == "__main__":
    sys.exit(main())
