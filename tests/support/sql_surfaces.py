"""One statement on three surfaces: the command, Python and HTTP, each on the same state.

The lake and the job store are put back before each run, so that the surfaces see the same paths,
versions and numbers of jobs. A thread takes the jobs, as a worker does, without a process for each.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from lakehand.cli.main import run as run_command
from lakehand.errors import LakehandError, describe_error
from lakehand.runs.control import RunControl
from lakehand.service.config import load_config
from lakehand.service.job_main import run_job
from lakehand.service.job_specs import JobSpecs
from lakehand.service.store.database import open_database
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd
from lakehand.service.store.table_registry import TableRegistry
from lakehand.sql.grammar import parse_statement
from lakehand.sql.statements import RunVerb
from support.job_stores import claim_by
from support.web_apps import WebApp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCHEMA = pa.schema({"id": pa.int64(), "region": pa.string(), "at": pa.int64()})
#: What differs from run to run: times, identifiers and what was measured.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?(?: UTC)?")
_IDENTIFIER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\b[0-9a-f]{16,64}\b|\b\d{8}T[\w-]+"
)
_MEASURED = re.compile(r"(?:_seconds|_ms|per_second|^rank_at|_bytes_free|^createdAt)$")
#: The name of the user, of the token, or what Python was told.
_WHO = {"asked_by", "paused_by", "by"}


class Surfaces:
    """A lake with the table `orders`, its service, and three ways to run a statement."""

    def __init__(self, folder: Path) -> None:
        self._root, self._kept = folder / "live", folder / "kept"
        self._build()
        shutil.copytree(self._root, self._kept)
        # Made once: it reads its own source for the description of the API.
        self._web = WebApp(open_database(self._store), {"service": {"store": self._store}})

    def close(self) -> None:
        self._web.database.close()

    def _build(self) -> None:
        self._root.mkdir(parents=True)
        self.config.write_text(f'[service]\nstore = "{self._store}"\n')
        table = lakehand.create_table(self._root / "orders", _SCHEMA, partition_by=["region"])
        for number in range(3):
            rows = {"id": [number, 7], "region": ["eu", "eu"], "at": [number, number]}
            table.append(pa.table(rows, _SCHEMA), sink_maintenance=False)
        with lakehand.ServiceClient(self.config, create=True, by="ann") as client:
            client.tables.add(str(self._root / "orders"))
            waiting = client.jobs.submit("orders", "health")
            client.jobs.pause(waiting.job.id)  # So that no worker takes it before CANCEL JOB.
            ended = client.jobs.submit("orders", "clean_logs")
            client.jobs.cancel(ended.job.id)

    @property
    def config(self) -> Path:
        return self._root / "lakehand.toml"

    @property
    def _store(self) -> str:
        return f"sqlite:///{self._root}/jobs.db"

    def _put_back(self) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(self._kept, self._root)

    def documents(self, statement: str, parameters: Any, capsys: Any) -> dict[str, Any]:
        """Return the document of a statement on each surface, without what differs by chance."""
        found = {}
        for name, run in (("python", self._python), ("http", self._http), ("cli", self._cli)):
            self._put_back()
            with self._worker() if is_waited_for(statement, parameters) else nullcontext():
                found[name] = settled(run(statement, parameters, capsys))
        return found

    def _python(self, statement: str, parameters: Any, _capsys: Any) -> Any:
        with lakehand.ServiceClient(self.config, by="ann") as client:
            try:
                result = lakehand.run_sql(statement, parameters, service=client)
            except LakehandError as error:
                return {"error": error.to_json()}
        return json.loads(json.dumps(result.to_json()))

    def _http(self, statement: str, parameters: Any, _capsys: Any) -> Any:
        body = {"statement": statement, "parameters": parameters, "wait_seconds": 60}
        try:
            return self._web.ask("POST", "/api/v1/sql", body).json
        finally:
            self._web.database.engine.dispose()  # The file of the store is replaced.

    def _cli(self, statement: str, parameters: Any, capsys: Any) -> Any:
        given = [f"--param={name}={value}" for name, value in (parameters or {}).items()]
        capsys.readouterr()
        run_command(["sql", "--json", f"--config={self.config}", *given, statement])
        return json.loads(capsys.readouterr().out)

    @contextmanager
    def _worker(self) -> Iterator[None]:
        ending = threading.Event()
        thread = threading.Thread(target=self._work, args=(ending,))
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _work(self, ending: threading.Event) -> None:
        config = load_config(self.config)
        database = open_database(config.service.store)
        queue = JobQueue(database)
        specs = JobSpecs(config, queue, TableRegistry(database))
        while not ending.wait(0.02):
            job = queue.claim(claim_by("w"))
            if job is None:
                continue
            try:
                report = run_job(specs.of(job), RunControl(), lambda _: None).to_json()
            except Exception as error:  # noqa: BLE001  the job failed
                end = AttemptEnd(outcome="failed", error=describe_error(error))
                queue.finish(job.id, job.fence, end, state="failed")
            else:
                end = AttemptEnd(outcome=report.get("outcome", "done"), report=report)
                queue.finish(job.id, job.fence, end, state="succeeded")
        database.close()


def is_waited_for(statement: str, parameters: Any) -> bool:
    """Whether a statement becomes a job, and waits for it."""
    try:
        found = parse_statement(statement, parameters)
    except LakehandError:
        return False
    return isinstance(found, RunVerb) and not found.is_async


def settled(value: Any, name: str = "") -> Any:
    """Return a document without times, identifiers and measurements."""
    if isinstance(value, dict):
        return {key: settled(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item, name) for item in value]
    if name in _WHO and value is not None:
        return "<who>"
    if isinstance(value, str):
        return _IDENTIFIER.sub("<id>", _TIME.sub("<time>", value))
    if _MEASURED.search(name) and value is not None:
        return f"<{type(value).__name__}>"
    return value
