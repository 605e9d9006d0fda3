"""The policies of deploy/iam allow what they are for, and no more, where they are enforced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakehand
from lakehand import errors
from lakehand.service.config import SourceSection
from lakehand.service.discovery import discover
from lakehand.storage import open_store
from support.later_vacuums import vacuum_later
from support.tasks_here import run_tasks_here

pytestmark = pytest.mark.server
POLICIES = Path(__file__).parents[2] / "deploy" / "iam"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    run_tasks_here(monkeypatch)


@pytest.fixture
def uri(s3_server):
    """Return a table of the bucket's owner, with some small files."""
    uri = f"{s3_server.new_uri()}/events"
    table = lakehand.create_table(
        uri, SCHEMA, storage_options=s3_server.options, properties=PROPERTIES
    )
    for number in range(3):
        table.append(rows(number, 10 + number))
    return uri


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [str(number) for number in ids]})


def statements(name, uri, *, without=None):
    """Return the statements of a policy for the directory of a table."""
    bucket, prefix = uri.removeprefix("s3://").removesuffix("/events").split("/")
    text = (POLICIES / f"{name}.json").read_text()
    found = json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix))["Statement"]
    kept = [
        {**entry, "Action": [action for action in entry["Action"] if action != without]}
        for entry in found
        if entry["Action"] != [without]
    ]
    assert without is None or kept != found
    return kept


def opened(s3_server, name, uri, **options):
    allowed = s3_server.grant(statements(name, uri, **options))
    return lakehand.open_table(open_store(uri, allowed))


def test_everything_that_only_reads_works_with_the_policy_to_read(s3_server, uri):
    table = opened(s3_server, "read", uri)

    assert table.to_arrow().num_rows == 6
    assert table.inspect().file_count == 3
    assert table.verify(deep=True).findings == ()
    assert len(table.history()) == 4
    assert table.plan(min_files=2).groups
    assert table.changes(from_version=1).read_all().num_rows == 6
    assert table.vacuum(dry_run=True).outcome == "dry_run"
    table.health()
    table.compact(min_files=2, dry_run=True)
    table.maintain(dry_run=True)
    assert table.delete(where="id = 0", dry_run=True).rows_removed == 1


def test_the_policy_to_read_does_not_allow_to_write(s3_server, uri):
    table = opened(s3_server, "read", uri)
    for change in (lambda: table.append(rows(9)), lambda: table.compact(min_files=2)):
        with pytest.raises(errors.AccessDeniedError) as caught:
            change()
        assert "s3:PutObject" in caught.value.hint
    assert table.snapshot().version == 3


def test_every_verb_works_with_the_policy_to_maintain(s3_server, uri):
    table = opened(s3_server, "maintain", uri)

    assert table.compact(min_files=2).outcome == "committed"
    table.append(large_rows())
    table.upsert(rows(1, 2), key=["id"])
    assert table.delete(where="id = 11").rows_removed == 1
    table.deduplicate(key=["id"])
    table.cluster(by=["id"])
    table.set_properties({"delta.appendOnly": "false"})
    table.statistics()
    table.pin("before", version=3)
    table.unpin("before")
    table.checkpoint()
    pointer = "_delta_log/_last_checkpoint"
    open_store(uri, s3_server.options).put(pointer, b"nonsense")
    assert table.repair().outcome == "committed"
    table.restore(version=3)
    table.maintain()
    table.purge()
    assert vacuum(table).files_deleted > 0
    table.clean_logs()
    assert table.verify(deep=True).findings == ()


def test_a_service_finds_its_tables_with_the_policy_to_maintain(s3_server, uri):
    allowed = s3_server.grant(statements("maintain", uri))
    directory = uri.removesuffix("/events")
    source = SourceSection(name="lake", include=(f"{directory}/*",))
    found = discover(source, lambda _: allowed)
    assert ([table.url for table in found.tables], found.errors) == ([uri], [])


def large_rows():
    """Return rows that take several parts of an upload."""
    noise = np.random.default_rng(7).integers(0, 2**63, 1_200_000)
    return pa.table({"id": noise, "name": pa.nulls(len(noise), pa.string())})


def vacuum(table):
    report = vacuum_later(table._handle.store)
    if report.errors:
        raise errors.error_from_json(report.errors[0])
    return report


@pytest.mark.parametrize(
    ("permission", "verb"),
    [
        ("s3:ListBucket", lambda table: table.inspect()),
        ("s3:GetObject", lambda table: table.to_arrow()),
        ("s3:PutObject", lambda table: table.append(rows(5))),
        ("s3:DeleteObject", vacuum),
    ],
)
def test_the_error_names_the_one_permission_that_is_missing(s3_server, uri, permission, verb):
    lakehand.open_table(uri, storage_options=s3_server.options).overwrite(rows(1))
    with pytest.raises(errors.AccessDeniedError) as caught:
        verb(opened(s3_server, "maintain", uri, without=permission))
    assert permission in caught.value.hint


def test_a_compaction_without_the_permission_to_delete_is_committed(s3_server, uri):
    table = opened(s3_server, "maintain", uri, without="s3:DeleteObject")
    assert table.compact(min_files=2).outcome == "committed"
    assert table.to_arrow().num_rows == 6


def test_an_upload_that_cannot_be_aborted_fails_with_its_first_error(s3_server, uri):
    table = opened(s3_server, "maintain", uri, without="s3:AbortMultipartUpload")
    writer = table._handle.store.open_writer("part")
    writer.write(b"x" * 20 * 2**20)
    writer.abort()
    assert not table._handle.store.exists("part")
