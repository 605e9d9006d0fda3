"""Hooks: commands and webhooks that are told of events, at least once each.

The outbox is filled in the transaction of the event itself. A delivery holds no transaction: it is
taken for a time, and if its end is not noted by then, it is due again. The id of the event lets a
receiver recognise what it has had before.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakehand.errors import ConfigError
from lakehand.model.secrets import SECRET_KINDS, read_secret
from lakehand.observe import get_logger, log_event
from lakehand.observe.http_post import PostError, post_json
from lakehand.service.store.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.service.config import HookSection
    from lakehand.service.store.database import Database
    from lakehand.service.store.outbox import Delivery

#: A delivery is tried for so long, ever more rarely.
_KEEP_SECONDS = 24 * 3600.0
_FIRST_DELAY, _LONGEST_DELAY = 5.0, 3600.0
_LIMIT = 100
#: One hook gets no further deliveries in a round that has lasted so long.
_ROUND_SECONDS = 30.0
#: An answer that says that the receiver has a problem, and not with this delivery.
_TOO_MANY, _SERVER_ERROR = 429, 500
_POLL_SECONDS = 0.02
_logger = get_logger(__name__)


class HookError(Exception):
    """A hook was not told. Its message has no secret in it."""

    def __init__(self, message: str, *, is_down: bool) -> None:
        super().__init__(message)
        #: Whether others would fail as well.
        self.is_down = is_down


@dataclass(slots=True)
class Delivered:
    """What one round of deliveries did."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


def event_document(delivery: Delivery) -> dict[str, Any]:
    """Return what a hook is told of an event."""
    table = {"id": delivery.table_id, "url": delivery.table_url, "name": delivery.table_name}
    return {
        "id": delivery.event_id,
        "kind": delivery.kind,
        "at": datetime.fromtimestamp(delivery.at, UTC).isoformat(),
        "table": None if delivery.table_id is None else table,
        "job": None if delivery.job_id is None else {"id": delivery.job_id, "verb": delivery.verb},
        "by": delivery.by,
        "details": delivery.details,
    }


#: What a message says of the events that people want to hear of.
_SENTENCES = {
    "budget.used_up": "The {unit} budget of {scope} for {day} is used up",
    "job.failed": "{verb} of {table} failed with {code} (job {job})",
    "job.lease_lost": "The worker {by} of {verb} of {table} was lost (job {job})",
    "job.succeeded": "{verb} of {table} succeeded: {outcome} (job {job})",
    "service.config_refused": "The changed configuration was refused; the old one holds",
    "table.healthy": "{table} is healthy again: score {score}",
    "table.held": "{verb} of {table} is held after {code}: a retry cannot succeed (job {job})",
    "table.unhealthy": "{table} is unhealthy: score {score}, limit {limit}",
    "worker.lost": "The worker {by} was lost",
}


def message_of(delivery: Delivery) -> str:
    """Return an event as one line for people."""
    table = delivery.table_name or delivery.table_url or f"table {delivery.table_id}"
    known = {"table": table, "job": delivery.job_id, "by": delivery.by, "verb": delivery.verb}
    values = defaultdict(lambda: "unknown", {**known, **delivery.details})
    sentence = _SENTENCES.get(delivery.kind)
    if sentence is not None:
        return sentence.format_map(values)
    subjects = [delivery.kind]
    if delivery.table_id is not None:
        subjects.append(table)
    if delivery.job_id is not None:
        subjects.append(f"job {delivery.job_id}")
    if delivery.by is not None:
        subjects.append(f"by {delivery.by}")
    return ", ".join(subjects)


def slack_document(delivery: Delivery) -> dict[str, Any]:
    """Return what an incoming webhook of Slack, Mattermost or Rocket.Chat takes.

    Names of tables may hold what these services read as links or mentions.
    """
    text = message_of(delivery)
    for sign, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, escaped)
    return {"text": f"lakehand: {text}"}


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a webhook: HMAC-SHA256 over `timestamp.body`.

    >>> sign("s", "1", b"{}")[:15]
    'sha256=b253639b'
    """
    message = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


class Hook:
    """One hook of the configuration."""

    def __init__(self, section: HookSection) -> None:
        self._section = section
        called = json.dumps([section.url, *section.command])
        #: Its name in the store: what it calls may hold a secret.
        self.id = hashlib.sha256(called.encode()).hexdigest()[:16]
        self.events = section.events
        self.timeout = section.timeout.total_seconds()

    @property
    def label(self) -> str:
        """What is shown of it: the host, or the program."""
        if self._section.command:
            return self._section.command[0].rsplit("/", 1)[-1]
        url = self._section.url or ""
        return url if url.startswith(SECRET_KINDS) else urlsplit(url).hostname or ""

    def tell(self, delivery: Delivery) -> None:
        """Call the command or the URL; HookError if it does not accept the event."""
        document = slack_document if self._section.format == "slack" else event_document
        body = json.dumps(document(delivery), separators=(",", ":")).encode()
        if self._section.command:
            _run(self._section.command, body, self.timeout)
        else:
            self._post(delivery, body)

    def _post(self, delivery: Delivery, body: bytes) -> None:
        timestamp = str(int(time.time()))
        headers = {
            "User-Agent": "lakehand",
            "X-Lakehand-Event": delivery.kind,
            "X-Lakehand-Event-Id": str(delivery.event_id),
            "X-Lakehand-Timestamp": timestamp,
        }
        try:
            url = self._section.url or ""
            if url.startswith(SECRET_KINDS):
                url = read_secret(url)
            if self._section.secret is not None:
                secret = read_secret(self._section.secret)
                headers["X-Lakehand-Signature"] = sign(secret, timestamp, body)
            post_json(url, body, headers, seconds=self.timeout)
        except ConfigError as error:
            raise HookError(error.message, is_down=True) from error
        except PostError as error:
            status = error.status
            is_down = status is None or status == _TOO_MANY or status >= _SERVER_ERROR
            raise HookError(str(error), is_down=is_down) from error


def _run(command: Sequence[str], body: bytes, seconds: float) -> None:
    """Run a command with a document as its input; nothing of it is left when this returns."""
    with tempfile.TemporaryFile() as document:
        document.write(body)
        document.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603  the command of the configuration, no shell
                list(command),
                stdin=document,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise HookError(f"the command cannot be run: {reason}", is_down=True) from error
    try:
        is_over = _wait(process.pid, seconds)
    finally:
        # The process is not reaped yet, so its id, and that of its group, is still its own.
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    if not is_over:
        raise HookError(f"the command did not end within {seconds:g} s", is_down=True)
    if code != 0:
        raise HookError(f"the command ended with {code}", is_down=False)


def _wait(pid: int, seconds: float) -> bool:
    """Wait until a process ends, and leave it to be reaped; False if it does not end in time."""
    deadline = time.monotonic() + seconds
    options = os.WEXITED | os.WNOWAIT | os.WNOHANG
    while os.waitid(os.P_PID, pid, options) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


class HookDelivery:
    """Tells hooks of events. One process does it; a second one would tell some of them twice."""

    def __init__(self, hooks: Sequence[HookSection], database: Database) -> None:
        self._outbox = Outbox(database)
        self._hooks = {hook.id: hook for hook in map(Hook, hooks)}
        self._chance = random.Random()  # noqa: S311  spreads retries, guards nothing

    def subscribe(self) -> None:
        """Have the events of the configured hooks collected from now on, by every process."""
        self._outbox.subscribe({hook.id: hook.events for hook in self._hooks.values()})

    def deliver_due(self) -> Delivered:
        """Tell hooks of the events that wait. Takes as long as the slowest hook may take."""
        longest = max((hook.timeout for hook in self._hooks.values()), default=0.0)
        hold = _ROUND_SECONDS + 2 * longest + 60
        due: dict[str, list[Delivery]] = {}
        for delivery in self._outbox.take_due(limit=_LIMIT, hold_seconds=hold):
            due.setdefault(delivery.hook, []).append(delivery)
        done = Delivered()
        known = [(self._hooks[name], due[name]) for name in due if name in self._hooks]
        if known:
            with ThreadPoolExecutor(len(known), thread_name_prefix="lakehand-hook") as threads:
                for part in threads.map(lambda one: self._deliver(*one), known):
                    done.sent += part.sent
                    done.failed += part.failed
                    done.dropped += part.dropped
        return done

    def _deliver(self, hook: Hook, waiting: Sequence[Delivery]) -> Delivered:
        """Tell one hook; if it is down, the others wait for the next round."""
        done = Delivered()
        until = time.monotonic() + _ROUND_SECONDS
        pause: float | None = None
        for delivery in waiting:
            if pause is not None or time.monotonic() >= until:
                self._outbox.retry(delivery, delay=pause or 0.0, counts=False)
                continue
            try:
                hook.tell(delivery)
            except HookError as error:
                delay = self._failed(hook, delivery, error, done)
                pause = delay if error.is_down else None
            else:
                self._outbox.delivered(delivery)
                done.sent += 1
        return done

    def _failed(self, hook: Hook, delivery: Delivery, error: HookError, done: Delivered) -> float:
        """Note that a hook was not told; return after how many seconds it is retried."""
        doubled = _FIRST_DELAY * 2.0 ** min(delivery.attempts - 1, 20)
        delay = min(_LONGEST_DELAY, doubled) * (0.5 + self._chance.random())
        message = "The hook %s was not told of event %d: %s"
        values = (hook.label, delivery.event_id, error)
        log_event(_logger, logging.WARNING, "hook_failed", message, *values)
        if delivery.age + delay > _KEEP_SECONDS:
            self._outbox.drop(delivery, hook=hook.label, reason=str(error))
            done.dropped += 1
        else:
            self._outbox.retry(delivery, delay=delay)
            done.failed += 1
        return delay
