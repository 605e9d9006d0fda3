"""Rows taken out of tables in S3, and a run that dies on the way."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.observe.steps import Step
from support.crash import run_and_kill
from support.deduplications import PROPERTIES, append, deduplicate_inline, in_order, kept, rows
from support.upserts import upserted

BATCHES = ([(1, 0, 0), (2, 0, 1), (9, 0, 9)], [(1, 0, 2), (3, 0, 3)], [(2, 0, 4), (4, 0, 5)])


@pytest.fixture
def options(s3_server):
    return s3_server.options


def make(uri, options, kind):
    names = {
        "endpoint": "AWS_ENDPOINT_URL",
        "region": "AWS_REGION",
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "allow_http": "AWS_ALLOW_HTTP",
    }
    storage = {names[key]: value for key, value in options.items()}
    storage["AWS_S3_ALLOW_UNSAFE_RENAME"] = "true"
    for batch in BATCHES:
        append(uri, rows(*batch), configuration=PROPERTIES[kind], storage_options=storage)
    return uri


def contents(uri, options):
    table = lakehand.open_table(uri, storage_options=options).to_arrow()
    return in_order(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_last(uri, options, takeover_after="2m"):
    return deduplicate_inline(
        uri, key=["id"], keep="last", storage_options=options, takeover_after=takeover_after
    )


@pytest.mark.parametrize("kind", PROPERTIES)
def test_one_row_of_each_key_stays_in_s3(s3_server, options, kind):
    uri = make(s3_server.new_uri(), options, kind)

    report = by_last(uri, options)

    assert contents(uri, options) == kept(BATCHES, keep="last")
    assert report.files_marked == (1 if kind == "vectors" else 0)


#: Steps, and whether the rows are gone already where the run is killed there.
STEPS = {
    **dict.fromkeys((Step.RUN_STARTED, Step.TASK_RESERVED, Step.TASK_WRITTEN), False),
    **dict.fromkeys((Step.TASK_PROVED, Step.RUN_COMMITTING, Step.COMMIT_PREPARED), False),
    **dict.fromkeys((Step.COMMIT_PUT, Step.COMMIT_CONFIRMED, Step.RUN_COMMITTED), True),
    **dict.fromkeys((Step.RUN_SETTLED, Step.RUN_CLOSED, Step.RUN_CLEANED), True),
}
#: What a run was about to commit when it died is left to vacuum, whose age rule is safe.
IN_DOUBT = {Step.RUN_COMMITTING, Step.COMMIT_PREPARED}
SHORT = [("vectors", Step.TASK_PROVED), ("copies", Step.COMMIT_PUT)]


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(kind, step, marks=() if (kind, step) in SHORT else pytest.mark.soak)
        for kind in PROPERTIES
        for step in STEPS
    ],
)
def test_a_run_killed_in_s3_is_ended_by_the_next(s3_server, options, kind, step):
    uri = make(s3_server.new_uri(), options, kind)
    before = objects(uri, options)

    run_and_kill(step, by_last, uri, options)
    assert len(contents(uri, options)) == (5 if STEPS[step] else 7)
    by_last(uri, options, "0s")

    assert contents(uri, options) == kept(BATCHES, keep="last")
    # The one file that loses some of its rows is written anew, or has a vector beside it.
    assert len(objects(uri, options) - before) == (2 if step in IN_DOUBT else 1)


def objects(uri, options):
    """Return the keys of all files that hold rows or hide them."""
    store = lakehand.open_table(uri, storage_options=options)._handle.store
    keys = {info.key for info in store.list()}
    return {key for key in keys if not key.startswith(("_delta_log/", "_lakehand/"))}


def test_rows_come_into_s3_by_their_keys(s3_server, options):
    uri = make(s3_server.new_uri(), options, "vectors")
    table = lakehand.open_table(uri, storage_options=options, engine="local")

    report = table.upsert(rows((9, 5, 5), (3, 5, 5), (7, 5, 5)), key=["id"])

    every = [row for batch in BATCHES for row in batch]
    assert contents(uri, options) == upserted(every, [(9, 5, 5), (3, 5, 5), (7, 5, 5)])
    assert (report.rows_updated, report.rows_inserted, report.files_marked) == (2, 1, 2)
