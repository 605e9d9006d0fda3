"""A notification queues what is due at once; repeated, late and wrong ones do no harm."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.service.config import parse_config
from lakehand.service.job_specs import table_policy
from lakehand.service.notifications import (
    Notification,
    Notifications,
    read_notification,
    read_object_events,
)
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from support.job_stores import add_pool

URL = "s3://lake/orders"


class Service:
    """Notifications of one table, assessed at version 10."""

    def __init__(self, database, **policy):
        add_pool(database)
        self.database = database
        self.jobs, self.tables = JobQueue(database), TableRegistry(database)
        check = {"commits": 3, "bytes": "1kb", "time": "10m"}
        self.config = parse_config(
            {
                "source": [{"name": "lake", "include": ["s3://lake/*"], "exclude": ["**/tmp"]}],
                "policy": {"default": {"check_after": check, **policy}},
            }
        )
        self.notifications = Notifications(
            self.config, database, jobs=self.jobs, tables=self.tables
        )
        self.table_id = self.tables.add(FoundTable(url=URL, format="delta"))[0].id
        now = database.time()
        self.tables.looked(
            self.table_id, look_every=3600, version=10, assessed_version=10, assessed_at=now
        )

    def notify(self, version=None, size=0, url=URL):
        return self.notifications.receive(Notification(url=url, version=version, bytes=size))

    def queued(self):
        return [(job.verb, job.trigger) for job in self.jobs.listed(states=["queued"])]

    @property
    def table(self):
        return self.tables.get(self.table_id)


@pytest.fixture
def service(database):
    return Service(database)


def test_a_job_is_queued_with_the_notification_that_meets_a_limit(service):
    assert [service.notify(version) for version in (11, 12, 13)] == ["noted", "noted", "queued"]
    assert service.queued() == [("maintain", "commits")]
    assert (service.table.assessed_version, service.table.commits_since) == (13, 0)


def test_bytes_are_counted(service):
    assert [service.notify(11, 600), service.notify(12, 600)] == ["noted", "queued"]
    assert service.queued() == [("maintain", "bytes")]


def test_repeated_late_and_unordered_notifications_change_nothing(service):
    assert [service.notify(v, 300) for v in (12, 12, 11, 12, 3)] == ["noted", *["known"] * 4]
    table = service.table
    assert (table.version, table.commits_since, table.bytes_since) == (12, 2, 300)
    assert service.queued() == []


def test_commits_without_versions_are_counted_and_looked_at(service):
    service.notify()
    assert [table.id for table in service.tables.to_look_at()] == [service.table_id]
    assert [service.notify(), service.notify()] == ["noted", "queued"]


def test_a_table_below_its_limits_is_looked_at_when_its_time_has_come(service, clock):
    service.notify(11)
    assert service.tables.to_look_at() == []
    clock.advance(601)
    assert len(service.tables.to_look_at()) == 1


def test_a_new_job_waits_behind_a_running_one(service):
    from support.job_stores import claim_by

    service.notify(13)
    service.jobs.claim(claim_by())
    assert service.notify(16) == "queued"
    assert len(service.queued()) == 1


def test_a_disabled_policy_and_a_held_verb_queue_nothing(database):
    service = Service(database, enabled=False)
    assert service.notify(20) == "noted"
    service = Notifications(
        parse_config({}), database, jobs=service.jobs, tables=(tables := service.tables)
    )
    with database.transaction() as connection:
        tables.change_in(connection, 1, version=40)
    digest = table_policy(service.config, tables.get(1)).digest
    tables.hold(
        1, "maintain", {"code": "X"}, job_id=1, lakehand=lakehand.__version__, policy=digest
    )
    with database.transaction() as connection:
        tables.change_in(connection, 1, version=39)
    assert service.receive(Notification(url=URL, version=40)) == "noted"
    assert service.receive(Notification(url=URL, version=60)) == "queued"


def test_an_unknown_table_is_discovered_only_below_a_source(service):
    assert service.notify(1, url="s3://lake/new") == "to_discover"
    assert service.notify(1, url="s3://lake/tmp") == "ignored"
    assert service.notify(1, url="s3://other/new") == "ignored"
    assert service.notify(1, url="s3://lake/deep/er") == "ignored"
    assert len(service.tables.listed()) == 1


def test_a_table_that_exists_is_registered_and_looked_at(database, tmp_path):
    tables = TableRegistry(database)
    lake = parse_config({"source": [{"name": "lake", "include": [str(tmp_path)]}]})
    notifications = Notifications(lake, database, jobs=JobQueue(database), tables=tables)
    table = lakehand.create_table(tmp_path / "a", pa.schema({"id": pa.int64()}))
    assert notifications.receive(Notification(url=table.url)) == "to_discover"
    assert notifications.discover(table.url)
    assert not notifications.discover(f"{table.url}-not")
    assert not notifications.discover("file:///elsewhere")
    (found,) = tables.to_look_at()
    assert (found.url, found.source, found.format) == (table.url, "lake", "delta")


def test_notifications_at_the_same_time_wait_for_each_other(service):
    versions = list(range(11, 31))
    threads = [threading.Thread(target=service.notify, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert service.table.version == 30
    assert service.queued() == [("maintain", "commits")]
    (job,) = service.jobs.listed(states=["queued"])
    assert job.requests >= 1


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"table": 3},
        {"table": ""},
        {"table": "s3://lake/" + "x" * 3000},
        {"table": URL, "version": -1},
        {"table": URL, "version": "7"},
        {"table": URL, "version": True},
        {"table": URL, "bytes": 2**63},
        {"table": URL, "secret": "x"},
    ],
)
def test_a_wrong_document_is_refused(document):
    with pytest.raises(ValidationError):
        read_notification(document)


def test_a_url_is_brought_into_its_canonical_form():
    found = read_notification({"table": "s3a://lake/orders/", "version": 7, "files": 1, "bytes": 9})
    assert found == Notification(url=URL, version=7, files=1, bytes=9)


def record(key, name="ObjectCreated:Put", bucket="lake"):
    return {"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}


LOG = f"orders/_delta_log/{7:020}.json"
LANCE = f"o.lance/_versions/{2**64 - 1 - 9}.manifest"


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([record(LOG)], [(URL, 7)]),
        ([record(LOG, "s3:ObjectCreated:CompleteMultipartUpload")], [(URL, 7)]),
        (
            [record(LOG.replace("orders", "a+b/c%C3%A9"))],
            [("s3://lake/a b/cé", 7), ("s3://lake/a+b/c%C3%A9", 7)],
        ),
        ([record(f"lake/{LOG}")], [("s3://lake/lake/orders", 7)]),
        ([record("../../x/" + LOG)], []),
        ([record(LOG), record(LOG.replace("7.", "9.")), record(LOG)], [(URL, 9)]),
        ([record(LANCE)], [("s3://lake/o.lance", 9)]),
        ([record("o.lance/_versions/12.manifest")], [("s3://lake/o.lance", 12)]),
        ([record(f"_delta_log/{0:020}.json")], [("s3://lake", 0)]),
        ([record(LOG, "ObjectRemoved:Delete")], []),
        ([record("orders/part-0.parquet")], []),
        ([record(LOG.replace(".json", ".checkpoint.parquet"))], []),
        ([record(LOG.replace(".json", ".crc"))], []),
        ([record("orders/_delta_log/_commits/00000000000000000001.x.json")], []),
        ([record("o/_versions/d12.manifest")], []),
    ],
)
def test_only_objects_that_commit_a_version_count(records, found):
    events = read_object_events({"Records": records})
    assert [(event.url, event.version) for event in events] == found


def test_a_test_event_says_nothing():
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}
    assert read_object_events(test) == []
    assert read_object_events({"Records": None}) == []


@pytest.mark.parametrize(
    "records", ["x", [1], [{}], [record(3)], [record(LOG, name=None)], [record(LOG)] * 1001]
)
def test_a_wrong_event_document_is_refused(records):
    with pytest.raises(ValidationError):
        read_object_events({"Records": records})
