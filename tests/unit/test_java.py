"""Finding Java among homes that are made up here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lakehand.engine import session
from lakehand.engine.session import find_java, java_version
from lakehand.errors import JavaMissingError


@pytest.fixture(autouse=True)
def no_usual_places(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "_USUAL_DIRECTORIES", (f"{tmp_path}/usual/*",))


@pytest.fixture
def make_home(tmp_path):
    def make(name, version, *, release=True):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho '    java.version = {version}' >&2\n")
        program.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        return home

    return make


def test_java_home_comes_first(make_home):
    home = make_home("chosen", "21.0.2")
    make_home("usual/jdk-17", "17.0.1")

    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_the_path_comes_next_and_links_are_followed(make_home, tmp_path):
    home = make_home("jdk", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")

    assert find_java({"PATH": str(tmp_path / "links")}) == home


def test_of_the_usual_places_the_oldest_that_is_new_enough_is_taken(make_home):
    make_home("usual/a", "25")
    make_home("usual/b", "1.8.0_402")
    wanted = make_home("usual/c", "17.0.15")

    assert find_java({"PATH": ""}) == wanted


def test_an_old_java_home_is_passed_over(make_home):
    old, wanted = make_home("old", "11.0.2"), make_home("usual/new", "17.0.1")

    assert find_java({"JAVA_HOME": str(old), "PATH": ""}) == wanted


def test_no_java_is_an_error_that_says_what_was_found_and_what_to_install(make_home):
    old = make_home("old", "1.8.0_402")

    with pytest.raises(JavaMissingError, match=f"found: Java 8 in {old}") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": "", "HOME": "/nowhere"})

    assert "openjdk-17" in caught.value.hint
    assert "--engine local" in caught.value.hint


def test_a_java_without_a_release_file_is_asked(make_home):
    assert java_version(make_home("jdk", "17.0.3", release=False)) == 17


def test_a_directory_without_java_has_no_version(tmp_path):
    assert java_version(tmp_path) is None


def test_a_program_that_cannot_be_run_has_no_version(make_home):
    home = make_home("jdk", "17", release=False)
    (home / "bin" / "java").write_text("not a program")

    assert java_version(home) is None


def test_a_java_that_does_not_run_spark_is_no_fault_of_lakehand(make_home):
    # In a process of its own: PySpark leaves the pipe of a Java open that does not start.
    program = (
        "from lakehand.engine.session import open_session\n"
        "from lakehand.errors import EngineError\n"
        "from lakehand.settings import Settings\n"
        "try:\n    open_session(Settings(environment={}))\n"
        "except EngineError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "JAVA_HOME": str(make_home("broken", "17.0.1"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Spark could not be started: ")
    assert 'engine="local"' in done.stdout
