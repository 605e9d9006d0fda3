"""Notifications of commits: from writers, and from object stores as S3 event documents.

A notification saves waiting for the next look at a table; it is never needed. One that is lost,
repeated, late or wrong costs time or a needless job, and nothing else.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_plus

from lakehand._version import __version__
from lakehand.errors import LakehandError, ValidationError
from lakehand.formats.registry import commit_of_key
from lakehand.observe import get_logger, log_event
from lakehand.service.discovery import find_table, source_of
from lakehand.service.job_specs import storage_options, table_policy
from lakehand.service.run_metrics import Increment
from lakehand.service.store.service_metrics import count
from lakehand.service.triggers import (
    changes_notified,
    find_trigger,
    job_request,
    next_look_at,
    state_after,
)
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from lakehand.service.config import ServiceConfig
    from lakehand.service.policies import TablePolicy
    from lakehand.service.store.database import Database
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.table_registry import RegisteredTable, TableRegistry

#: The outcome of a notification: a job was queued; the change was noted; the version was known; the
#: table is not registered, but lies where a source finds tables; it does not.
Effect = Literal["queued", "noted", "known", "to_discover", "ignored"]
#: The largest number that the store keeps.
_LARGEST = 2**63 - 1
#: Records of one event document; AWS sends one, others a few.
_MAX_RECORDS = 1000
_MAX_URL = 2048
_KEYS = {"table", "version", "files", "bytes"}
_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """A table has a new version."""

    url: str
    #: None: not known.
    version: int | None = None
    #: What the commit added; 0: not known.
    files: int = 0
    bytes: int = 0


def read_notification(document: Any) -> Notification:
    """Check the document of a writer; ValidationError says what is wrong with it."""
    if not isinstance(document, dict):
        raise _wrong("a notification is a JSON object", "document")
    unknown = sorted(document.keys() - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise _wrong(f"a notification has no member {unknown[0][:80]!r}; it has {known}", "table")
    table = document.get("table")
    if not isinstance(table, str) or not 0 < len(table) <= _MAX_URL:
        raise _wrong("`table` must be the URL of a table", "table")
    return Notification(
        url=path_to_url(table),
        version=_count(document, "version"),
        files=_count(document, "files") or 0,
        bytes=_count(document, "bytes") or 0,
    )


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _wrong(f"`{name}` must be a whole number that is not negative", name)
    return value


def read_object_events(document: Any) -> list[Notification]:
    """Return the commits in an S3 event document, one per table; other objects do not matter.

    AWS, MinIO and versitygw send `Records`; a test event has none.
    """
    if not isinstance(document, dict):
        raise _wrong("an event document is a JSON object", "Records")
    records = document.get("Records") or []
    if not isinstance(records, list):
        raise _wrong("`Records` must be a list", "Records")
    if len(records) > _MAX_RECORDS:
        raise _wrong(f"an event document has at most {_MAX_RECORDS} records", "Records")
    newest: dict[str, Notification] = {}
    for found in (one for record in records for one in _read_record(record)):
        known = newest.get(found.url)
        if known is None or (known.version or 0) < (found.version or 0):
            newest[found.url] = found
    return list(newest.values())


def _read_record(record: Any) -> Iterator[Notification]:
    try:
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        name = record.get("eventName", "")
    except (KeyError, TypeError, AttributeError) as error:
        message = "a record must have s3.bucket.name and s3.object.key"
        raise _wrong(message, "Records") from error
    if not all(isinstance(part, str) for part in (bucket, key, name)):
        raise _wrong("a record's bucket, key and event name are strings", "Records")
    if "ObjectCreated" not in name:
        return
    # AWS and MinIO encode the key as in a form, versitygw does not: a table that one of the two
    # readings names and that does not exist is ignored.
    for spelling in dict.fromkeys((unquote_plus(key), key)):
        found = commit_of_key(spelling)
        if found is not None and found[2] <= _LARGEST:
            root, _, version = found
            with suppress(LakehandError):  # Such as a key with '..' in it: no table is there.
                yield Notification(url=path_to_url(f"s3://{bucket}/{root}"), version=version)


class Notifications:
    """Takes notifications in: each is one short transaction."""

    def __init__(
        self,
        config: ServiceConfig,
        database: Database,
        *,
        jobs: JobQueue,
        tables: TableRegistry,
    ) -> None:
        self.config = config
        self._database = database
        self._jobs = jobs
        self._tables = tables

    def receive(self, notification: Notification) -> Effect:
        """Note a change and queue the job that is due by it; JobStoreError if that is not possible.

        For `to_discover` call `discover`, which may take long.
        """
        with self._database.transaction() as connection:
            found = self._tables.locked(connection, notification.url)
            if found is not None:
                effect = self._note(connection, *found, notification)
                count(connection, Increment("notifications", {"effect": effect}))
                return effect
        is_wanted = source_of(self.config, notification.url) is not None
        return "to_discover" if is_wanted else "ignored"

    def _note(
        self,
        connection: Connection,
        table: RegisteredTable,
        now: float,
        notification: Notification,
    ) -> Effect:
        applied = table_policy(self.config, table)
        policy = applied.policy
        changes = changes_notified(table, notification.version, notification.bytes)
        if changes.version == table.version and notification.version is not None:
            return "known"
        trigger = find_trigger(table, policy, changes, now)
        is_queued = trigger is not None and self._enqueue(
            connection, table, applied, trigger, changes.version, now
        )
        is_looked_at = notification.version is None or is_queued
        look_at = now if is_looked_at else next_look_at(table, policy, now)
        soon = self.config.service.poll_interval.total_seconds()
        values = {"look_at": look_at, "look_every": soon, **state_after(changes, trigger, now)}
        self._tables.change_in(connection, table.id, **values)
        return "queued" if is_queued else "noted"

    def _enqueue(
        self,
        connection: Connection,
        table: RegisteredTable,
        applied: TablePolicy,
        trigger: str,
        version: int | None,
        now: float,
    ) -> bool:
        """Queue the maintenance of a table, unless it is held; say whether it is queued."""
        held = self._tables.held_in(
            connection, table.id, version=version, lakehand=__version__, policy=applied.digest
        )
        if "maintain" in held:
            return False
        request = job_request(
            self.config,
            table,
            applied.policy,
            verb="maintain",
            trigger=trigger,
            version=version,
            now=now,
        )
        self._jobs.enqueue_in(connection, request)
        return True

    def discover(self, url: str) -> bool:
        """Register the table at a URL below a source, if there is one; it is looked at next."""
        source = source_of(self.config, url)
        if source is None:
            return False
        try:
            found = find_table(url, storage_options(self.config, url))
            if found is not None:
                self._tables.add(found, source=source.name)
        except LakehandError as error:
            # The next listing of the source finds it.
            log_event(_logger, logging.WARNING, "discovery_failed", "%s", error.message, table=url)
            return False
        return found is not None


def _wrong(message: str, name: str) -> ValidationError:
    return ValidationError(message, field=name)
