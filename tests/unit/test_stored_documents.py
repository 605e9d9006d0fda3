"""Documents that lakehand stores beside tables, as a later version or a damage leaves them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lakehand.errors import HotLogError, LakehandError, ValidationError, WriterCollisionError
from lakehand.formats.delta.retention.vacuum import note_vacuumed
from lakehand.formats.lance.commit_records import (
    Record,
    drop_records,
    list_records,
    note_landed,
    own_record,
    properties_of,
    put_pending,
    read_pending,
    read_record,
)
from lakehand.formats.lance.commit_records import _read as read_marks
from lakehand.hot.ownership import claim
from lakehand.maintenance.due_steps import vacuum_wait
from lakehand.observe.clock import ManualClock
from lakehand.planning.plan import Plan
from lakehand.retention.pins import Pin, list_pins, pinned_versions, put_pin
from lakehand.retention.quarantine import find_quarantine, list_quarantines
from lakehand.settings import Settings
from lakehand.sink.descriptor import Descriptor
from lakehand.sink.writer_lease import WriterLease
from lakehand.storage import MemoryStore
from support.plans import plan_sizes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = {"of_a_later_lakehand": [1]}
#: What is no object, and objects without what must be there.
NO_DOCUMENTS = [b"", b"[]", b"null", b"7", b'"x"', b"\xff", b"{}", b"[" * 10_000]
PLAN = plan_sizes([10, 10, 90, 2000], deleted=[0, 0, 50, 0]).plan
any_text = pytest.mark.parametrize("text", NO_DOCUMENTS, ids=range(len(NO_DOCUMENTS)))

PIN = {"name": "p", "version": 3, "created_at": NOW.isoformat(), "expires_at": None}
MANIFEST = {
    "id": "q",
    "created_at": NOW.isoformat(),
    "sweep_after": NOW.isoformat(),
    "files": 1,
    "bytes": 1,
}
STAGED = {"path": "a", "bytes": 1, "rows": 1}
DESCRIPTOR = {
    "version": 1,
    "writer": "w",
    "epoch": 1,
    "table_id": None,
    "rules": "r",
    "base_version": 0,
    "files": [STAGED],
}
RECORD = {"token": "t", "operation": "compact", "base_version": 1, "outputs": ["a"]}


@pytest.fixture
def store(request):
    return MemoryStore(request.node.nodeid.replace("/", "-"))


def put(store, key, value):
    store.put(key, value if isinstance(value, bytes) else json.dumps(value).encode())


# Pins


def test_a_pin_of_a_later_version_is_in_force(store):
    put_pin(store, Pin(name="p", version=3, created_at=NOW))
    put(store, "_lakehand/pins/p.json", {**PIN, **LATER})
    assert pinned_versions(store, now=NOW) == (3,)


@any_text
def test_an_unreadable_pin_is_named(store, text):
    put(store, "_lakehand/pins/p.json", text)
    with pytest.raises(ValidationError, match=r"_lakehand/pins/p\.json"):
        list_pins(store)


@pytest.mark.parametrize(
    "odd",
    [
        {"version": "3"},
        {"version": True},
        {"expires_at": "2026-01-01T00:00:00"},
        {"created_at": None},
        {"stream": 5},
        {"version": None},
    ],
)
def test_a_pin_of_another_shape_is_named(store, odd):
    put(store, "_lakehand/pins/p.json", {**PIN, **odd})
    with pytest.raises(ValidationError, match=r"_lakehand/pins/p\.json"):
        pinned_versions(store, now=NOW)


# Quarantines


def test_a_quarantine_of_a_later_version_is_known(store):
    put(store, "_lakehand/quarantine/q/manifest.json", {**MANIFEST, **LATER})
    put(store, "_lakehand/quarantine/q/fate.json", {"fate": "undone", **LATER})
    (found,) = list_quarantines(store)
    assert (found.sweep_after, found.fate) == (NOW, "undone")


@any_text
@pytest.mark.parametrize("name", ["manifest.json", "fate.json"])
def test_an_unreadable_quarantine_is_named(store, name, text):
    put(store, "_lakehand/quarantine/q/manifest.json", MANIFEST)
    put(store, f"_lakehand/quarantine/q/{name}", text)
    with pytest.raises(LakehandError, match=f"_lakehand/quarantine/q/{name}"):
        list_quarantines(store)


@pytest.mark.parametrize("odd", [{"sweep_after": "2026-01-01T00:00:00"}, {"id": "other"}])
def test_a_quarantine_of_another_shape_is_named(store, odd):
    put(store, "_lakehand/quarantine/q/manifest.json", {**MANIFEST, **odd})
    with pytest.raises(LakehandError, match="quarantine/q/manifest"):
        find_quarantine(store, "q")


# Plans


def test_a_plan_with_members_that_are_not_known_is_read():
    value = PLAN.to_json()
    value |= LATER
    for part in (value["groups"][0], value["policy"], value["forecast"], value["remaining"]):
        part.update(LATER)
    assert Plan.from_text(json.dumps(value)) == PLAN


@pytest.mark.parametrize(
    "odd",
    [
        {"groups": None},
        {"groups": "x"},
        {"groups": [7]},
        {"policy": []},
        {"remaining": None},
        {"forecast": 7},
        {"order": 7},
        {"version": "3"},
        {"layout": 5},
        {"curve": "round"},
        {"left": [1]},
    ],
)
def test_a_plan_of_another_shape_is_refused(odd):
    with pytest.raises(ValidationError, match="not a plan"):
        Plan.from_text(json.dumps(PLAN.to_json() | odd))


@pytest.mark.parametrize("odd", [{"recoded": [9]}, {"paths": []}, {"paths": ["a", "a"]}])
def test_a_plan_whose_groups_contradict_themselves_is_refused(odd):
    value = PLAN.to_json()
    value["groups"][0].update(odd)
    with pytest.raises(ValidationError, match="not a plan"):
        Plan.from_text(json.dumps(value))


@any_text
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(ValidationError):
        Plan.from_text(text.decode(errors="replace"))


# Sinks


def test_a_descriptor_with_members_that_are_not_known_is_read():
    value = {**DESCRIPTOR, **LATER, "files": [{**STAGED, **LATER}]}
    assert Descriptor.from_json(json.dumps(value)).rows == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"files": None},
        {"files": [1]},
        {"files": [{"path": 5, "bytes": 1, "rows": 1}]},
        {"epoch": "1"},
        {"epoch": -1},
        {"epoch": 2**63},
        {"epoch": True},
        {"writer": None},
        {"base_version": 1.5},
    ],
)
def test_a_descriptor_of_another_shape_is_refused(odd):
    with pytest.raises(ValidationError, match="descriptor"):
        Descriptor.from_json(json.dumps({**DESCRIPTOR, **odd}))


@any_text
def test_what_is_no_descriptor_is_refused(text):
    with pytest.raises(ValidationError, match="descriptor"):
        Descriptor.from_json(text.decode(errors="replace"))


@any_text
def test_an_unreadable_lease_is_still_a_lease_and_gives_way_to_the_next(store, text):
    first, second = (WriterLease(store=store, writer_id="w", session=name) for name in "ab")
    first.acquire()
    (key,) = (info.key for info in store.list("_lakehand/writers"))
    put(store, key, text)
    assert first.check()
    with pytest.raises(WriterCollisionError):
        second.check()
    assert second.acquire() == (frozenset(), True)
    assert second.check()
    with pytest.raises(WriterCollisionError):
        first.check()


# The hot tier


@any_text
def test_an_unreadable_record_of_a_hot_directory_is_named(tmp_path, text):
    (tmp_path / "hot.json").write_bytes(text)
    with pytest.raises(HotLogError, match=r"hot\.json"):
        claim(tmp_path, table="t", table_id=None, key=(), writer_id=None)


def test_members_of_a_hot_directory_that_are_not_known_are_ignored(tmp_path):
    known = claim(tmp_path, table="t", table_id=None, key=("a",), writer_id="w")
    value = json.loads((tmp_path / "hot.json").read_text())
    (tmp_path / "hot.json").write_text(json.dumps({**value, **LATER}))
    assert claim(tmp_path, table="t", table_id=None, key=("a",), writer_id="w") == known
    (tmp_path / "hot.json").write_text(json.dumps({**value, "writer_id": 7}))
    with pytest.raises(HotLogError, match=r"hot\.json"):
        claim(tmp_path, table="t", table_id=None, key=("a",), writer_id="w")


# Lance


def test_records_with_members_that_are_not_known_are_read(store):
    put(store, "_lakehand/commits/pending/t.json", {**RECORD, **LATER})
    assert read_pending(store, "t").outputs == ("a",)
    assert own_record({**RECORD, **LATER, "marks": {"w": 1}}).token == "t"
    put(store, "_lakehand/marks.json", {"version": 3, "marks": {"w": 1}, **LATER})
    assert read_marks(store) == ({"w": 1}, 3)


@any_text
def test_unreadable_records_are_named_and_left_alone(store, text):
    put_pending(store, Record(token="t", operation="compact", base_version=1))
    note_landed(store, Record(token="u", operation="compact", base_version=1), version=2)
    put(store, "_lakehand/commits/pending/t.json", text)
    key = f"_lakehand/commits/{2:020d}.json"
    put(store, key, text)
    for read in (lambda: read_pending(store, "t"), lambda: read_record(store, 2)):
        with pytest.raises(LakehandError, match="_lakehand/commits/"):
            read()
    assert list_records(store) == []
    drop_records(store, versions=(), live=())
    assert store.exists(key)


@any_text
def test_unreadable_marks_are_named(store, text):
    put(store, "_lakehand/marks.json", text)
    with pytest.raises(LakehandError, match=r"_lakehand/marks\.json"):
        read_marks(store)


def test_unreadable_properties_are_typed():
    for text in ("{", "[]", "7"):
        with pytest.raises(LakehandError, match="lakehand"):
            properties_of({"lakehand": text})
    with pytest.raises(LakehandError, match="lakehand"):
        own_record({"token": 5})


# When a table was vacuumed


@pytest.mark.parametrize(
    "text", [*NO_DOCUMENTS, b'{"at": "2026-01-01T00:00:00"}', b'{"at": 5}'], ids=range(10)
)
def test_an_unreadable_note_of_the_last_vacuum_makes_the_next_one_due(store, text):
    put(store, "_lakehand/vacuumed.json", text)

    class Table:
        pass

    table = Table()
    table.store = store
    settings = Settings({"vacuum_interval": "1d"})
    assert vacuum_wait(table, settings=settings, clock=ManualClock()) == timedelta(0)
    put(store, "_delta_log/_last_vacuum_info", text)
    note_vacuumed(store, None)
