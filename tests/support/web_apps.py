"""The application of the HTTP server, called without a network, over a store with some rows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lakehand.service.config import parse_config
from lakehand.service.notifications import Notifications
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.records import AttemptEnd, Claim, FoundTable, JobRequest
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.token_registry import TokenRegistry
from lakehand.service.store.worker_registry import Worker, WorkerRegistry
from lakehand.web.access import AccessRules
from lakehand.web.app import create_app
from support.job_stores import add_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.store.database import Database


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class WebApp:
    """The application, and whoever asks it."""

    def __init__(
        self,
        database: Database,
        config: Mapping[str, Any] | None = None,
        *,
        address: str = "127.0.0.1:8484",
        token: str | None = None,
        kept_seconds: float = 0.0,
    ) -> None:
        """Answers are made for each request, unless they are to be kept."""
        self.database = database
        self.config = parse_config(dict(config or {}))
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        self.tokens = TokenRegistry(database)
        self.workers = WorkerRegistry(database)
        notifications = Notifications(self.config, database, jobs=self.jobs, tables=self.tables)
        rules = AccessRules.of(address, token, self.config.web, find_token=self.tokens.find)
        self.app = create_app(notifications, database, rules, kept_seconds=kept_seconds)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        peer: str = "127.0.0.1",
        **headers: str,
    ) -> Answer:
        """Send one request; a body that is no bytes is sent as JSON."""
        given = {"host": "127.0.0.1:8484", **headers}
        content = body if isinstance(body, bytes) else b"" if body is None else _dumped(body)
        return asyncio.run(self._call(method, path, content, peer, given))

    async def _call(
        self, method: str, path: str, body: bytes, peer: str, headers: Mapping[str, str]
    ) -> Answer:
        parts = urlsplit(path)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path, errors="surrogateescape"),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
            ],
            "client": (peer, 1),
            "server": ("127.0.0.1", 8484),
        }
        sent: list[Any] = []

        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if requests:
                return requests.pop()
            return await asyncio.Event().wait()  # It does not go away before the answer.

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], head, content)


def _dumped(body: Any) -> bytes:
    return json.dumps(body).encode()


def fill(web: WebApp, tables: int = 3) -> None:
    """Give a store some tables, a job in each state, and a worker."""
    add_pool(web.database)
    for number in range(tables):
        found = FoundTable(url=f"s3://lake/t{number}", format="delta", name=f"t{number}")
        table, _ = web.tables.add(found, source="lake")
        summary = {"total_bytes": (number % 7) * 10**9, "file_count": number}
        score = None if number % 5 == 0 else number % 101
        web.tables.looked(
            table.id, look_every=3600, policy="default", summary=summary, health_score=score
        )
    web.workers.start(
        Worker(
            id="w-1",
            host="machine",
            pid=1,
            version="0",
            engines=["local"],
            slots=2,
            memory_bytes=2**30,
        )
    )
    for table_id, state in ((1, "succeeded"), (2, "failed"), (3, "running")):
        web.jobs.enqueue(JobRequest(table_id=table_id, verb="compact", trigger="commits"))
        job = web.jobs.claim(Claim(worker_id="w-1"))
        assert job is not None
        if state != "running":
            error = {"code": "CONFLICT", "message": "it failed", "hint": "try again"}
            end = AttemptEnd(outcome=state, error=error if state == "failed" else None)
            web.jobs.finish(job.id, job.fence, end, state=state)  # type: ignore[arg-type]
    web.jobs.enqueue(JobRequest(table_id=1, verb="vacuum", trigger="time", reasons=["a day"]))
