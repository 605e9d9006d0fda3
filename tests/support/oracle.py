"""delta-spark as the judge: one process for a whole test session, spoken to in JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

START_SECONDS = 240
ANSWER_SECONDS = 240
STOP_SECONDS = 20


class OracleError(Exception):
    """delta-spark refused or failed; the message is its own."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        #: Name of the Python class that PySpark raised.
        self.kind = kind


class Oracle:
    """A long-lived delta-spark. Every read starts from storage unless `fresh=False` is said."""

    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "oracle.log"
        self._tables = scratch / "tables"
        self._made: dict[Hashable, Path] = {}
        # Its PySpark is the one that delta-spark needs, whichever the tests run with.
        python = os.environ.get("ORACLE_PYTHON", sys.executable)
        environment = {**unmeasured(), "TZ": "UTC", "PYSPARK_PYTHON": python}
        server = Path(__file__).with_name("oracle_server.py")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(server), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=environment,
                text=True,
                # Its own group, so that the JVM can be ended with it.
                start_new_session=True,
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._receive(START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(self, text: str, *, fresh: bool = True) -> list[dict[str, Any]]:
        """Run one statement and return its rows; timestamps and decimals as Spark's JSON says."""
        return [json.loads(row) for row in self._ask("sql", fresh=fresh, text=text)]

    def rows(
        self,
        path: Path | str,
        *,
        version: int | None = None,
        columns: Sequence[str] = ("*",),
        where: str = "true",
        fresh: bool = True,
    ) -> list[str]:
        """Return the rows of a table as sorted JSON texts; `columns` are SQL expressions."""
        return self._ask(
            "rows",
            fresh=fresh,
            path=str(path),
            version=version,
            columns=list(columns),
            where=where,
        )

    def files_read(self, path: Path | str, *, where: str) -> list[str]:
        """Return the files that delta-spark reads for a query, after skipping by statistics."""
        return self._ask("files_read", path=str(path), where=where)

    def export(
        self,
        path: Path | str,
        target: Path | str,
        *,
        version: int | None = None,
        columns: Sequence[str] = ("*",),
    ) -> None:
        """Write what delta-spark reads from a table into a directory of plain Parquet files."""
        arguments = {"path": str(path), "target": str(target), "version": version}
        self._ask("export", **arguments, columns=list(columns))

    def write(
        self,
        path: Path | str,
        query: str,
        *,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        files: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Write the rows of `query` into a table, in `files` files (a partition)."""
        self._ask(
            "write",
            path=str(path),
            query=query,
            mode=mode,
            partition_by=list(partition_by),
            files=files,
            options=dict(options or {}),
        )

    def provide(self, name: Hashable, path: Path, make: Callable[[Path], None]) -> None:
        """Put a copy of a table at `path`; `make` makes it at the first call with this name."""
        if name not in self._made:
            made = self._tables / str(len(self._made))
            make(made)
            self._made[name] = made
        # Times are kept: those of commits are the times of their files.
        shutil.copytree(self._made[name], path)

    def detail(self, path: Path | str) -> dict[str, Any]:
        return json.loads(self._ask("detail", path=str(path))[0])

    def history(self, path: Path | str) -> list[dict[str, Any]]:
        """Return the commits, newest first."""
        return [json.loads(entry) for entry in self._ask("history", path=str(path))]

    def changes(self, path: Path | str, *, starting_version: int) -> list[str]:
        """Return the change feed from `starting_version` on, as sorted JSON texts."""
        return self._ask("changes", path=str(path), starting_version=starting_version)

    def stream(
        self, path: Path | str, checkpoint: Path | str, *, options: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return what a stream sees that is new since its last call with this `checkpoint`."""
        arguments = {"path": str(path), "checkpoint": str(checkpoint)}
        return self._ask("stream", **arguments, options=dict(options or {}))

    @contextlib.contextmanager
    def configured(self, values: Mapping[str, str]) -> Iterator[None]:
        """Have these settings of the session in force inside the block."""
        before = self._ask("configure", values=dict(values))
        try:
            yield
        finally:
            self._ask("configure", values=before)

    def close(self) -> None:
        """End the process and its JVM; twice is harmless."""
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._process.stdout.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)

    def _listen(self) -> None:
        with contextlib.suppress(ValueError):  # the pipe was closed while we read
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put("")

    def _ask(self, method: str, *, fresh: bool = True, **arguments: Any) -> Any:
        request = {"method": method, "fresh": fresh, "arguments": arguments}
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise OracleError(f"delta-spark has ended: {self._last_words()}") from error
        return self._receive(ANSWER_SECONDS)

    def _receive(self, seconds: float) -> Any:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._kill()
            message = f"delta-spark gave no answer in {seconds} s: {self._last_words()}"
            raise OracleError(message) from None
        if not line:
            raise OracleError(f"delta-spark has ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"], kind=answer["kind"])
        return answer["result"]

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
