"""How many requests the operations need on S3: each costs money, and time."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import lakehand
from support.faulty_proxy import run_faulty_proxy
from support.later_vacuums import vacuum_later

pytestmark = pytest.mark.server
FILES = 6
#: The ledger of a run with one group: 7 puts, 4 listings, 2 gets, a head and 3 deletions.
LEDGER = 17


@pytest.fixture
def proxy(s3_server):
    with run_faulty_proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def table(s3_server, proxy):
    uri, schema = s3_server.new_uri(), pa.schema([("id", pa.int64()), ("x", pa.float64())])
    options = {**s3_server.options, "endpoint": proxy.endpoint}
    written = lakehand.create_table(uri, schema, storage_options=options)
    for number in range(FILES):
        written.append(pa.table({"id": list(range(number, 600, FILES)), "x": [0.5] * 100}))
    proxy.requests.clear()
    return lakehand.open_table(uri, storage_options=options, engine="local")


def data_files(proxy, paths):
    """Return how often each of these data files was requested."""
    found = Counter(path.rpartition("/")[2] for method, path in proxy.requests if method == "GET")
    return [found[path] for path in paths]


def paths_of(table, proxy):
    paths = table.snapshot().files["path"].to_pylist()
    proxy.requests.clear()
    return paths


def of_ledger(proxy):
    return [(method, path) for method, path in proxy.requests if "_lakehand" in path]


def of_log(proxy):
    return [(method, path) for method, path in proxy.requests if "_delta_log" in path]


def deletions(proxy):
    return [path for _, path in proxy.requests if "?delete" in path]


def test_a_compaction_reads_a_file_to_plan_and_once_more_to_rewrite_it(table, proxy):
    paths = paths_of(table, proxy)

    report = table.compact(min_files=2)

    assert report.files_removed == FILES
    assert max(data_files(proxy, paths)) <= 2
    assert len(of_ledger(proxy)) + len(deletions(proxy)) <= LEDGER
    # Hint, listing and commits; the head and what came since; the commit, put and read back.
    assert len(of_log(proxy)) <= FILES + 6


def test_rows_are_clustered_with_one_request_for_each_file(table, proxy):
    paths = paths_of(table, proxy)

    report = table.cluster(by=["id"])

    assert report.files_removed == FILES
    assert data_files(proxy, paths) == [1] * FILES
    assert len(of_ledger(proxy)) + len(deletions(proxy)) <= LEDGER


def test_a_vacuum_looks_twice_at_what_came_since(table, proxy):
    table.compact(min_files=2)
    proxy.requests.clear()

    report = vacuum_later(table._handle.store)

    assert report.files_deleted == FILES
    assert len(deletions(proxy)) == 1
    assert len(proxy.requests) <= FILES + 20
