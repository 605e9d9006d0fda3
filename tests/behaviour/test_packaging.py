"""The wheel and the sdist hold what they should, and the wheel runs in a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import lakehand
from support.small_tables import make_table

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Build both from a copy of what git tracks, as a release does."""
    place = tmp_path_factory.mktemp("dist")
    sources = place / "sources"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = ("src/", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
    for name in listed.stdout.split("\0"):
        if name.startswith(wanted) and (ROOT / name).exists():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            (sources / name).write_bytes((ROOT / name).read_bytes())
    program = "import hatchling.build as build, sys; build.build_sdist(sys.argv[1])"
    program += "; build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, place], cwd=sources, check=True)
    return place


def test_both_are_accepted_by_an_index(built):
    files = [*built.glob("*.whl"), *built.glob("*.tar.gz")]
    assert len(files) == 2
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_wheel_has_types_pages_and_licence_and_no_tests(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        metadata = message_from_string(
            wheel.read(f"lakehand-{lakehand.__version__}.dist-info/METADATA").decode()
        )
    assert {"lakehand/py.typed", "lakehand/web/static/style.css"} <= names
    assert f"lakehand-{lakehand.__version__}.dist-info/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {
        "lakehand",
        f"lakehand-{lakehand.__version__}.dist-info",
    }
    assert set(metadata.get_all("Provides-Extra")) == set(EXTRAS)
    # Modules, templates and static files of the sources, each of them.
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "lakehand").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"}
    }
    assert sources <= names


def test_the_sdist_can_build_the_wheel(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/lakehand/py.typed"} <= names


def test_extras_are_those_that_the_pages_name():
    assert {"spark", "lance", "connect", "aws", "hive", "glue", "unity", "service", "web"} <= {
        *EXTRAS
    }
    everything = EXTRAS["all"][0].removeprefix("lakehand[").removesuffix("]").split(",")
    assert {*everything, "all"} == {*EXTRAS}
    assert not any("pyspark" in line for line in PROJECT["dependencies"])


def install(wheel: Path, place: Path) -> Path:
    """Install the wheel alone into a fresh environment that finds its dependencies in this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = place / "lib" / version / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, wheel], check=True)
    # Without the .pth files there, among them that of this clone.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_the_wheel_runs_in_a_fresh_environment(built, tmp_path):
    programs = install(next(built.glob("*.whl")), tmp_path / "environment")
    table = make_table(tmp_path / "events")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*words):
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = call(programs / "python", "-c", "import lakehand; print(lakehand.__file__)")
    assert where.startswith(str(tmp_path))
    assert "Merge small files" in call(programs / "lakehand", "--help")
    assert "health" in call(programs / "lakehand", "inspect", table)


@pytest.mark.soak
@pytest.mark.parametrize("extras", ["", "[service,web]"])
def test_a_full_installation_runs(built, tmp_path, extras):
    wheel = next(built.glob("*.whl"))
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, f"lakehand{extras} @ file://{wheel}"], check=True)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert size < 450_000_000
    table = make_table(tmp_path / "events")
    subprocess.run([place / "bin" / "lakehand", "inspect", table], check=True)
    subprocess.run([place / "bin" / "lakehand", "compact", table, "--min-files", "2"], check=True)
    uninstalled = [place / "bin" / "pip", "uninstall", "--quiet", "--yes", "lakehand"]
    subprocess.run(uninstalled, check=True)
    assert not (place / "bin" / "lakehand").exists()
