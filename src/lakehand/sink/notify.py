"""Tells a service of commits, so that it need not look for them.

Nothing waits for it and nothing fails with it: a service that was not told finds the commit when it
looks at the table.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lakehand.errors import LakehandError
from lakehand.model.secrets import read_secret
from lakehand.observe import get_logger, log_event
from lakehand.observe.http_post import PostError, post_json

if TYPE_CHECKING:
    from lakehand.settings import Settings

_PATH = "/api/v1/notify"
#: For connecting and for the answer.
_TIMEOUT_SECONDS = 2.0
#: Tables with commits that are still to be told of. More than these are not.
_MAX_WAITING = 1000
#: How long a process that ends waits for what is still to be told.
_EXIT_SECONDS = 2.0
_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One commit, or several of one table, that a service has not been told of."""

    table: str
    version: int
    files: int
    bytes: int

    def with_earlier(self, earlier: Commit | None) -> Commit:
        """Return this commit and earlier ones as one message."""
        if earlier is None:
            return self
        return replace(
            self,
            version=max(self.version, earlier.version),
            files=self.files + earlier.files,
            bytes=self.bytes + earlier.bytes,
        )


class CommitNotifier:
    """Posts commits to one service from a separate thread."""

    def __init__(self, url: str, token: str | None) -> None:
        """`token` is the place of the token: it is read for each message."""
        self._url = url
        self._token = token
        self._waiting: dict[str, Commit] = {}
        self._changed = threading.Condition()
        self._is_sending = False
        self._thread: threading.Thread | None = None
        #: Whether the last message failed: only the first failure is logged.
        self._has_failed = False

    def post(self, commit: Commit) -> None:
        """Tell the service of a commit soon. Returns at once."""
        with self._changed:
            if commit.table not in self._waiting and len(self._waiting) >= _MAX_WAITING:
                return
            self._waiting[commit.table] = commit.with_earlier(self._waiting.get(commit.table))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lakehand-notify", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait for messages under way, but not for long; say whether all were sent."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._is_sending, timeout=seconds
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                commit = self._waiting.pop(next(iter(self._waiting)))
                self._is_sending = True
            try:
                self._send(commit)
                self._has_failed = False
            except Exception as error:  # noqa: BLE001  a service that cannot be told fails no write
                self._failed(commit, error)
            with self._changed:
                self._is_sending = False
                self._changed.notify_all()

    def _send(self, commit: Commit) -> None:
        headers = {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {read_secret(self._token)}"
        url = self._url.rstrip("/")
        if not url.endswith("/notify"):
            url += _PATH
        body = json.dumps(asdict(commit)).encode()
        post_json(url, body, headers, seconds=_TIMEOUT_SECONDS)

    def _failed(self, commit: Commit, error: Exception) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        message = "%s could not be told of version %d of %s: %s"
        # Of an unexpected error only its kind: its message may quote a header.
        reason = error if isinstance(error, PostError | LakehandError) else type(error).__name__
        values = (self._url, commit.version, commit.table, reason)
        log_event(_logger, logging.WARNING, "notify_failed", message, *values, table=commit.table)


_notifiers: dict[tuple[str, str | None], CommitNotifier] = {}
_lock = threading.Lock()


def notify_commit(settings: Settings, table: str, *, version: int, files: int, size: int) -> None:
    """Tell the service that the settings name of a commit; nothing if they name none."""
    url, token = settings.notify_url, settings.notify_token
    if url is None:
        return
    with _lock:
        notifier = _notifiers.get((url, token))
        if notifier is None:
            notifier = _notifiers[url, token] = CommitNotifier(url, token)
    with contextlib.suppress(RuntimeError):  # No thread can be started: the commit has succeeded.
        notifier.post(Commit(table=table, version=version, files=files, bytes=size))


def flush_notifications(seconds: float = _EXIT_SECONDS) -> None:
    """Wait for messages under way, where the process may end next."""
    deadline = time.monotonic() + seconds
    for notifier in list(_notifiers.values()):
        notifier.flush(max(deadline - time.monotonic(), 0.0))


def _forget() -> None:
    """Begin without threads in a forked process, which has none of its parent's."""
    global _lock  # noqa: PLW0603  another thread of the parent may hold it
    _lock = threading.Lock()
    _notifiers.clear()


atexit.register(flush_notifications)
os.register_at_fork(after_in_child=_forget)
