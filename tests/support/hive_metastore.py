"""A real Hive metastore for tests: from the jars that come with PySpark, its data in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 180
_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}
_OPENED = ("java.base/java.net", "java.base/java.lang", "java.base/java.util")


@contextmanager
def run_metastore(directory: Path) -> Iterator[str]:
    """Run a metastore that ends with the block; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    settings = {**_SETTINGS, "hive.metastore.warehouse.dir": str(directory / "warehouse")}
    command = [
        java,
        "-Xmx384m",
        f"-Dderby.stream.error.file={directory}/derby.log",
        *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
        "-cp",
        f"{Path(pyspark.__file__).parent}/jars/*",
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        "-p",
        str(port),
    ]
    for name, value in settings.items():
        command += ["--hiveconf", f"{name}={value}"]
    with (directory / "metastore.log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, port, directory / "metastore.log")
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the metastore ended: {log.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no metastore within {START_SECONDS} s: {log.read_text()[-2000:]}")
