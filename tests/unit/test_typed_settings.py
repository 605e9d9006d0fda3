"""Options of verbs are typed: an editor completes them, and a checker finds a misspelt one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import lakehand
from lakehand.settings import SETTINGS, Settings, setting_types

ROOT = Path(__file__).parents[2]
SCRIPT = """
from datetime import timedelta
import lakehand
from lakehand.sink import SinkCommitter

table = lakehand.open_table("t", target_file_bytes="256 MiB", engine="local")
report = table.compact(min_files=2, quiet_period=timedelta(minutes=1), prove="digest")
print(report.files_removed)
table.vacuum(retention="7 days", dry_run=True)
lakehand.TableSink("t", writer_id="w", schema_evolution=True)
table.compact(min_fils=2)
table.compact(prove="sometimes")
table.vacuum(target_file_bytes=1)
lakehand.open_table("t", retension="7 days")
lakehand.TableSink("t", writer="w")
SinkCommitter("t", pipeline="p", commit_timout="1 s")
lakehand.Settings({}).target_file_byte
"""
#: The lines of the script that are wrong.
WRONG = list(range(11, 18))


def test_a_checker_finds_misspelt_options_in_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert sorted({int(line.split(":")[1]) for line in found}) == WRONG, done.stdout


def test_the_types_of_settings_are_those_of_the_table():
    path = ROOT / "scripts" / "generate_settings.py"
    specification = importlib.util.spec_from_file_location("generate_settings", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.render() == module.TARGET.read_text(), "run: make docs"


def test_every_setting_is_an_attribute():
    settings = Settings({}, environment={})
    assert [s.name for s in SETTINGS if not hasattr(settings, s.name)] == []
    assert {s.name for s in SETTINGS} & set(dir(Settings)) == set()


def test_every_setting_is_an_option_of_open_table():
    assert set(setting_types.OpenSettings.__annotations__) == {s.name for s in SETTINGS}


def test_every_verb_types_its_settings():
    verbs = [getattr(lakehand.Table, name) for name in dir(lakehand.Table) if name[0] != "_"]
    verbs += [lakehand.open_table, lakehand.create_table, lakehand.check_health]
    verbs += [lakehand.TableSink.__init__, lakehand.HotTable.__init__]
    given = [v.__annotations__["settings"] for v in verbs if "settings" in _annotations(v)]
    assert len(given) > 20
    assert [text for text in given if not _is_typed(text)] == []


def _annotations(verb):
    return getattr(verb, "__annotations__", {})


def _is_typed(text):
    name = text.removeprefix("Unpack[").removesuffix("]")
    return typing.is_typeddict(getattr(setting_types, name, None))


@pytest.mark.parametrize("name", ["DeltaSink", "RetryPolicy", "with_retry"])
def test_names_of_the_first_release_work_with_a_warning(name):
    with pytest.warns(DeprecationWarning, match="is now lakehand"):
        assert getattr(lakehand, name)


@pytest.mark.parametrize("name", ["DeltaSink", "AsyncDeltaSink", "DeltaCommitter"])
def test_names_of_sinks_of_the_first_release_work_with_a_warning(name):
    from lakehand import sink

    with pytest.warns(DeprecationWarning, match=r"is now lakehand\.sink\."):
        assert getattr(sink, name)
