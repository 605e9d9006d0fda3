"""The HTTP server, in a thread of the service's process. Signals are the service's own."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from lakehand.errors import ConfigError, ServiceError
from lakehand.model.secrets import read_secret
from lakehand.observe import get_logger, log_event
from lakehand.service.config_sections import split_address
from lakehand.service.notifications import Notifications
from lakehand.service.store.token_registry import TokenRegistry
from lakehand.web.access import AccessRules
from lakehand.web.app import create_app

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from lakehand.service.config import ServiceConfig
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import TableRegistry

#: Requests that are answered at a time; others are told to come back.
_MAX_CONNECTIONS = 512
_START_SECONDS = 30.0
_logger = get_logger(__name__)


class WebServer:
    """Serves HTTP from `start` to `stop`."""

    def __init__(
        self,
        config: ServiceConfig,
        database: Database,
        *,
        jobs: JobQueue,
        tables: TableRegistry,
    ) -> None:
        self._config = config
        self._database = database
        self.notifications = Notifications(config, database, jobs=jobs, tables=tables)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._streams_end = threading.Event()

    def reconfigure(self, config: ServiceConfig) -> None:
        """Take sources and policies of another configuration; address and token stay."""
        self.notifications.config = config

    def start(self, address: str | None = None) -> str:
        """Listen at an address, or at that of the configuration, and return the URL.

        ConfigError if the address needs a token or cannot be had. Port 0 takes a free one.
        """
        if self._thread is not None:
            raise ServiceError("the HTTP server has been started already")
        address = address or self._config.web.listen
        place = self._config.web.token
        token = None if place is None else read_secret(place)
        find_token = TokenRegistry(self._database).find
        rules = AccessRules.of(address, token, self._config.web, find_token=find_token)
        self._socket = _bind(address)
        app = create_app(self.notifications, self._database, rules)
        self._streams_end = app.state.feed.ending
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=5,
            )
        )
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="lakehand-web")
        self._thread.start()
        self._wait_until_started(started)
        log_event(_logger, logging.INFO, "web_started", "Listening at %s", self.url)
        return self.url

    def _serve(self, started: threading.Event) -> None:
        assert self._server is not None  # noqa: S101  made before the thread
        assert self._socket is not None  # noqa: S101  bound before the thread
        try:
            self._server.run(sockets=[self._socket])
        finally:
            started.set()

    def _wait_until_started(self, ended: threading.Event) -> None:
        assert self._server is not None  # noqa: S101  made before
        waited = 0.0
        while not self._server.started and waited < _START_SECONDS and not ended.wait(0.02):
            waited += 0.02
        if not self._server.started:
            self.stop()
            raise ServiceError("the HTTP server did not start", hint="its log says why")

    @property
    def url(self) -> str:
        """Where the server listens."""
        if self._socket is None:
            raise ServiceError("the HTTP server has not been started")
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def is_alive(self) -> bool:
        """Whether the server runs; False also if it has failed."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self, timeout: float = 15.0) -> bool:
        """Answer the requests that are under way, and end; say whether it has ended."""
        if self._server is None or self._thread is None:
            return True
        self._streams_end.set()
        self._server.should_exit = True
        self._thread.join(timeout)
        if self._socket is not None:
            self._socket.close()
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        if self._thread is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _bind(address: str) -> socket.socket:
    host, port = split_address(address)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"the server cannot listen on {address}: {error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        hint = "another process listens there; set another [web] listen"
        raise ConfigError(f"the server cannot listen on {address}: {error}", hint=hint) from error
    return bound
