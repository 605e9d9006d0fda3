"""Routes of notifications, and of probes."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from lakehand.observe import get_logger, log_event
from lakehand.service.notifications import read_notification, read_object_events
from lakehand.web.requests import read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lakehand.service.notifications import Effect, Notification, Notifications
    from lakehand.service.store.database import Database

#: Tables that wait to be discovered, and how long one is not looked for again.
_MAX_DISCOVERIES, _DISCOVERY_PAUSE = 1000, 60.0
_logger = get_logger(__name__)


class Discoveries:
    """Looks for tables that nothing is known of but a notification, in the background."""

    def __init__(self, discover: Callable[[str], object]) -> None:
        self._discover = discover
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="lakehand-discoveries")
        self._lock = threading.Lock()
        #: When each table was asked for.
        self._asked: dict[str, float] = {}

    def ask(self, url: str) -> None:
        """Look for a table soon, unless it was looked for just now, or too many wait."""
        now = time.monotonic()
        with self._lock:
            if len(self._asked) >= _MAX_DISCOVERIES:
                asked = self._asked.items()
                self._asked = {one: at for one, at in asked if now - at < _DISCOVERY_PAUSE}
            is_recent = now - self._asked.get(url, -_DISCOVERY_PAUSE) < _DISCOVERY_PAUSE
            if is_recent or len(self._asked) >= _MAX_DISCOVERIES:
                return
            self._asked[url] = now
        self._threads.submit(self._run, url)

    def _run(self, url: str) -> None:
        try:
            self._discover(url)
        except Exception as error:  # noqa: BLE001  the next listing of its source finds the table
            log_event(_logger, logging.WARNING, "discovery_failed", "%s", type(error).__name__)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


class NotificationRoutes:
    """Takes notifications in, and answers probes."""

    def __init__(self, notifications: Notifications, database: Database) -> None:
        self._notifications = notifications
        self._database = database
        self._discoveries = Discoveries(notifications.discover)

    async def health(self, _request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> JSONResponse:
        await run_in_threadpool(self._database.time)
        return JSONResponse({"status": "ready"})

    async def notify(self, request: Request) -> JSONResponse:
        notification = read_notification(await read_json(request))
        effect = await run_in_threadpool(self._receive, notification)
        return JSONResponse({"table": notification.url, "effect": effect}, 202)

    async def object_events(self, request: Request) -> JSONResponse:
        # Formats are imported when the first key is read.
        found = await run_in_threadpool(read_object_events, await read_json(request))
        effects = [await run_in_threadpool(self._receive, one) for one in found]
        tables = [
            {"table": one.url, "effect": effect} for one, effect in zip(found, effects, strict=True)
        ]
        return JSONResponse({"tables": tables})

    def _receive(self, notification: Notification) -> Effect:
        effect = self._notifications.receive(notification)
        if effect == "to_discover":
            self._discoveries.ask(notification.url)
        return effect

    def close(self) -> None:
        self._discoveries.close()
