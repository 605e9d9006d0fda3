"""What tests of every kind share."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support.cases_in_turn import not_in_share, not_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.azure_server import AzureServer
    from support.dynamodb_server import DynamoDbServer
    from support.oracle import Oracle
    from support.postgresql import PostgresqlServer
    from support.s3_server import S3Server


# How long an example takes says more about the machine than about the code.
settings.register_profile("lakehand", deadline=None)
settings.load_profile("lakehand")

# Programs of Spark end here before the second compiler of a JVM has paid for itself: delta-spark as
# the oracle takes a quarter less of the processor without it. What the first compiler makes gets a
# room of 48 MB then, which the oracle fills in a few minutes; from there on it compiles again what
# was thrown away. Not to verify the classes of Spark's jars saves a fifth of a start and a tenth of
# the rest; it is an option for diagnosis.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    " -XX:-BytecodeVerificationRemote",
)


def pytest_configure() -> None:
    """Hear Ctrl-C, which a shell lets its background jobs ignore, and whatever they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is for `make soak`, and keep what shares a JVM on one worker."""
    for item in (*not_in_turn(items), *not_in_share(items)):
        item.add_marker(pytest.mark.soak)
    for item in items:
        if "oracle" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("oracle"))
        elif "host" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


_numbers = itertools.count()
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A directory whose name no other test has, because Lance knows tables by their paths.

    It is deleted at once if the test passes: the directories may be in memory.
    """
    name = re.sub(r"\W", "_", request.node.name)[:26]
    path = tmp_path_factory.mktemp(f"{name}_{next(_numbers)}", numbered=False)
    yield path
    if not request.node.stash.get(_failed, False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command that ran in this process did to logging."""
    logger = logging.getLogger("lakehand")
    handlers, level = logger.handlers, logger.level
    yield
    logger.handlers = handlers
    logger.setLevel(level)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """delta-spark, started at its first use and shared by the session."""
    from support.oracle import Oracle

    with Oracle(tmp_path_factory.mktemp("oracle")) as process:
        yield process


def _require(program: Path, script: str) -> None:
    """Fail, or skip if that is allowed, where the program of a server is missing."""
    if not program.exists():
        reason = f"{program} is missing; scripts/{script} installs it"
        if os.environ.get("LAKEHAND_ALLOW_SKIPS"):
            pytest.skip(reason)
        pytest.fail(reason)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, started at its first use and shared by the session."""
    from support.s3_server import BINARY, run_s3_server

    _require(BINARY, "install-s3-server")
    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """A real server of Azure blobs, started at its first use and shared by the session."""
    from support.azure_server import PROGRAM, run_azure_server

    _require(PROGRAM, "install-azurite")
    with run_azure_server() as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[DynamoDbServer]:
    """A server of DynamoDB, started at its first use and shared by the session."""
    from support.dynamodb_server import run_dynamodb_server

    with run_dynamodb_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server that all tests of a process share."""
    from support.postgresql import find_programs, serve_postgresql

    if find_programs() is None and os.environ.get("LAKEHAND_ALLOW_SKIPS"):
        pytest.skip("PostgreSQL is not installed")
    yield from serve_postgresql()


@pytest.fixture
def emptied_postgresql(postgresql) -> str:
    """The URL of a PostgreSQL store without rows. Making its tables takes longer than a test."""
    from sqlalchemy import text

    from lakehand.service.store.database import open_database
    from lakehand.service.store.database_schema import METADATA, SCHEMA

    opened = open_database(postgresql.url())
    names = ", ".join(name for name in METADATA.tables if name != SCHEMA.name)
    with opened.transaction() as connection:
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    opened.close()
    return postgresql.url()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Have files made as on most machines, where others can read what does not forbid it."""
    before = os.umask(0o022)
    yield
    os.umask(before)
