"""Find a Java that Spark can use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lakehand.errors import JavaMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MINIMUM_JAVA = 17

_USUAL_DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
# 17.0.15 since Java 9, 1.8.0_402 before.
_VERSION = re.compile(r'^(?:JAVA_VERSION="|\s*java\.version = )(?:1\.)?(\d+)', re.MULTILINE)
_ASK_SECONDS = 20


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the home of a Java that is new enough: JAVA_HOME, else PATH, else the usual places.

    JavaMissingError says what to install, and what was found instead.
    """
    environment = os.environ if environment is None else environment
    too_old: list[str] = []
    for home in _candidates(environment):
        version = java_version(home)
        if version is not None and version >= MINIMUM_JAVA:
            return home
        too_old += [f"Java {version} in {home}"] if version is not None else []
    found = f" (found: {', '.join(dict.fromkeys(too_old))})" if too_old else ""
    raise JavaMissingError(
        f"Spark needs Java {MINIMUM_JAVA} or later and there is none{found}",
        hint="install a JRE, for example `apt install openjdk-17-jre-headless` or"
        " `brew install openjdk@17`, or run without Java: --engine local",
    )


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in `home`; None if there is none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except OSError:
        text = _ask_version(java)
    match = _VERSION.search(text)
    return int(match.group(1)) if match else None


def _ask_version(java: Path) -> str:
    """Ask a Java that has no `release` file."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603  a program named java, found where Java is installed
            command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    home = environment.get("HOME", "/nonexistent")
    for pattern in _USUAL_DIRECTORIES:
        absolute = pattern.replace("~", home, 1).lstrip("/")
        # The oldest that is new enough: Spark supports new versions of Java late.
        homes = Path("/").glob(absolute)
        yield from sorted(homes, key=lambda path: (java_version(path) or 0, path))
