"""Registered tables, on both kinds of store."""

from __future__ import annotations

import pytest

from lakehand.errors import JobNotFoundError
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import FoundTable, TableRegistry
from support.job_stores import add_pool, claim_by, request


@pytest.fixture
def registry(database):
    add_pool(database)
    return TableRegistry(database)


def found(*names):
    return [FoundTable(url=f"s3://lake/{name}", format="delta", name=name) for name in names]


def test_a_table_is_registered_once(registry, clock):
    first, is_new = registry.add(found("a")[0])
    clock.advance(10)
    again, is_new_again = registry.add(found("a")[0])
    assert (is_new, is_new_again, first.id) == (True, False, again.id)
    assert again.seen_at == first.seen_at + 10


def test_a_table_that_disappears_loses_its_queued_jobs_and_comes_back(database, registry):
    queue = JobQueue(database)
    registry.see(found("a", "b"), source="lake")
    a, b = registry.listed()
    job = queue.enqueue(request(a.id)).job_id
    other = queue.enqueue(request(b.id)).job_id
    assert registry.see(found("b"), source="lake") == (0, [a.id])
    assert (queue.get(job).state, queue.get(job).outcome) == ("cancelled", "table_gone")
    assert queue.get(other).state == "queued"
    assert [table.name for table in registry.listed()] == ["b"]
    assert registry.see(found("a", "b"), source="lake") == (0, [])
    assert [table.name for table in registry.listed()] == ["a", "b"]


def test_tables_of_other_sources_are_not_gone(registry):
    registry.add(found("manual")[0])
    registry.see(found("a"), source="lake")
    registry.see([], source="lake")
    assert [table.name for table in registry.listed()] == ["manual"]


def test_a_paused_table_starts_no_job(database, registry, clock):
    queue = JobQueue(database)
    table, _ = registry.add(found("a")[0])
    queue.enqueue(request(table.id))
    registry.pause(table.id, by="someone", why="migration", until=clock.now().timestamp() + 60)
    assert queue.claim(claim_by()) is None
    clock.advance(61)
    assert queue.claim(claim_by()) is not None


def test_a_paused_table_is_resumed(database, registry):
    queue = JobQueue(database)
    table, _ = registry.add(found("a")[0])
    queue.enqueue(request(table.id))
    registry.pause(table.id, by="someone")
    assert queue.claim(claim_by()) is None
    registry.resume(table.id)
    assert queue.claim(claim_by()) is not None


def test_a_look_does_not_undo_a_notification_that_came_meanwhile(database, registry, clock):
    table, _ = registry.add(found("a")[0])
    registry.looked(table.id, look_every=60, version=5)
    with database.transaction() as connection:
        registry.change_in(connection, table.id, version=8, commits_since=3)
    registry.looked(table.id, look_every=3600, version_before=5, version=6, commits_since=1)
    (due,) = registry.to_look_at()
    assert (due.version, due.commits_since) == (8, 3)
    registry.looked(table.id, look_every=3600, version_before=8, version=2, commits_since=0)
    assert registry.to_look_at() == []
    assert registry.get(table.id).version == 2  # Version 8 was a wrong one.


def test_a_held_verb_is_lifted_by_a_new_version_of_the_table_or_of_lakehand(registry):
    table, _ = registry.add(found("a")[0])
    error = {"code": "CORRUPT_FILE", "message": "..."}
    registry.looked(table.id, look_every=60, version=5)
    registry.hold(table.id, "compact", error, job_id=1, lakehand="0.1")
    assert registry.held_verbs(table.id, lakehand="0.1") == {"compact": error}
    assert registry.held_verbs(table.id, lakehand="0.2") == {}
    registry.looked(table.id, look_every=60, version=6, version_before=5)
    assert registry.held_verbs(table.id, lakehand="0.1") == {}


def test_a_table_is_found_by_id_name_and_url(registry):
    table, _ = registry.add(found("a")[0])
    names = [str(table.id), "a", "s3://lake/a", "s3://lake/a/"]
    assert {registry.find(name).id for name in names} == {table.id}
    with pytest.raises(JobNotFoundError, match="no registered table 'b'"):
        registry.find("b")


def test_a_removed_table_is_not_looked_at(registry):
    table, _ = registry.add(found("a")[0])
    registry.remove(table.id, by="someone")
    assert registry.to_look_at() == []
    assert registry.listed() == []
    assert [kept.id for kept in registry.listed(is_gone=True)] == [table.id]
