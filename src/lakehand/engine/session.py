"""Start a Spark session where none was passed in, with a Java that Spark can use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehand.engine.runner_contract import TASK_ATTEMPTS, require_pyspark
from lakehand.errors import EngineError, JavaMissingError
from lakehand.model.secrets import read_remote
from lakehand.temporary import user_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.settings import Settings


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
_QUOTED = re.compile(r"""[\s"'\\$]""")


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


#: Plain `local[*]` never tries a task again.
DEFAULT_MASTER = f"local[*,{TASK_ATTEMPTS}]"

#: PySpark sets it before it connects to a server of Spark Connect, and leaves it: this process and
#: its children could then not start Spark on this machine.
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"

#: Keeps Python from importing what lies in the current directory, as `python -P` does.
_SAFE_PATH = "PYTHONSAFEPATH"
_OWN = {
    "spark.app.name": "lakehand",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Python workers import nothing from the directory in which they are started.
    f"spark.executorEnv.{_SAFE_PATH}": "1",
}
_ON_ONE_MACHINE = {
    # A machine's own name often resolves to an address that it cannot reach itself on.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "lakehand.engine.spark_daemon",
}
# Where all tasks are lakehand's, Spark hands bytes on and does little else, for a short while: the
# thorough compiler of Java takes more time for that than it saves. Rows of a caller's query would
# take twice as long without it. The caller's extraJavaOptions follow these.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


def open_session(
    settings: Settings, *, is_kept: bool = False
) -> tuple[Any, Callable[[], None] | None]:
    """Return a Spark session, and what ends it; None: the caller of lakehand started it.

    The process's active session is used where there is one. Otherwise one is started: on the
    Spark Connect server `remote`, else on `master`, else on this machine. One that `is_kept`
    is the caller's from now on, who ends it.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active, None
    remote = settings.remote
    if remote is not None:
        remote = read_remote(remote)
        if not remote.startswith("sc://"):
            _prepare_jvm(remote)
        return _started_on_server(SparkSession.builder.remote(remote), is_kept=is_kept)
    master = settings.master or DEFAULT_MASTER
    _prepare_jvm(master)
    builder = SparkSession.builder.master(master)
    for name, value in _options(master, is_kept=is_kept).items():
        builder = builder.config(name, value)
    session = _started(builder)
    return session, session.stop


def _started_on_server(builder: Any, *, is_kept: bool) -> tuple[Any, Callable[[], None]]:
    _connect_mode.enter()
    try:
        session = _started(builder)
    except BaseException:
        _connect_mode.leave()
        raise
    if is_kept:
        _connect_mode.hand_over()
        return session, session.stop

    def end() -> None:
        try:
            session.stop()
        finally:
            _connect_mode.leave()

    return session, end


class _ConnectMode:
    """Removes what PySpark leaves in the environment, with the last session of lakehand's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions = 0
        self._was_set = False

    def enter(self) -> None:
        with self._lock:
            if not self._sessions:
                self._was_set = _CONNECT_MODE in os.environ
            self._sessions += 1

    def hand_over(self) -> None:
        """Leave the variable to the caller's session, as PySpark does."""
        with self._lock:
            self._sessions -= 1
            self._was_set = True

    def leave(self) -> None:
        with self._lock:
            self._sessions -= 1
            if not self._sessions and not self._was_set and not _has_session_on_server():
                os.environ.pop(_CONNECT_MODE, None)


def _has_session_on_server() -> bool:
    """Return whether the caller of lakehand has a session on a server."""
    module = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return False
    sessions = module.SparkSession
    default = getattr(sessions, "_default_session", None)
    return default is not None or sessions.getActiveSession() is not None


_connect_mode = _ConnectMode()


def _options(master: str, *, is_kept: bool) -> dict[str, str]:
    """Return the settings of a session; one that `is_kept` runs the queries of its caller, too.

    Spark shuffles rows into the temporary directory of Java, with the mode of the umask. Its own
    settings of another place, such as `spark.local.dir`, come first.
    """
    # Tasks compress what they hand on, where that pays.
    options = _OWN if is_kept else {**_OWN, "spark.shuffle.compress": "false"}
    if not _is_local(master):
        return options
    place = user_directory()
    # Options of Java are split at spaces: a place with one is left out, and Java's own is used.
    temporary = "" if _QUOTED.search(place) else f"-Djava.io.tmpdir={place}"
    compiler = "" if is_kept else _JAVA_OPTIONS
    found = {**options, **_ON_ONE_MACHINE}
    for process, parts in (("driver", (compiler, temporary)), ("executor", (compiler,))):
        if java := " ".join(filter(None, parts)):
            found[f"spark.{process}.defaultJavaOptions"] = java
    return found


def _started(builder: Any) -> Any:
    try:
        # A JVM on this machine hands its environment on to the Python workers.
        with _environment(_SAFE_PATH, "1"):
            return builder.getOrCreate()
    except Exception as error:
        # Spark raises its errors, and those of py4j and gRPC.
        reason = str(error).partition("\n")[0]
        raise EngineError(
            f"Spark could not be started: {reason}",
            hint="what Spark printed says more; without Spark: --engine local",
        ) from error


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _prepare_jvm(master: str) -> None:
    """Point Spark to Java and to this Python; both are read when the JVM starts."""
    os.environ["JAVA_HOME"] = str(find_java())
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        # On a cluster the user may know better where Python lies.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def setting_of(spark: Any, name: str, default: str) -> str:
    """Return what a session says of a setting of Spark."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(name, default))
    except PySparkException:
        # Some servers of Spark Connect keep their settings to themselves.
        return default
