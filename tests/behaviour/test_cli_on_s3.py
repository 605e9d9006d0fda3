"""The command on a table in a real object store."""

from __future__ import annotations

import json

import pytest

from lakehand.cli.main import run
from support.small_tables import make_table, read_sorted

pytestmark = pytest.mark.server


@pytest.fixture
def delta_rs_options(s3_server):
    """What delta-rs calls the options of the store."""
    names = {
        "endpoint": "AWS_ENDPOINT_URL",
        "region": "AWS_REGION",
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "allow_http": "AWS_ALLOW_HTTP",
    }
    return {names[key]: value for key, value in s3_server.options.items()}


@pytest.fixture
def uri(s3_server, delta_rs_options):
    place = s3_server.new_uri()
    make_table(place, commits=4, storage_options=delta_rs_options)
    return place


@pytest.fixture
def lakehand(s3_server, capsys):
    pairs = [f"{key}={value}" for key, value in s3_server.options.items()]
    flags = [word for pair in pairs for word in ("--storage-option", pair)]

    def call(*words):
        code = run(["--log-level", "debug", *words, *flags, "--json"])
        captured = capsys.readouterr()
        assert s3_server.options["secret_access_key"] not in captured.out + captured.err
        assert code == 0, captured.err
        return json.loads(captured.out)

    return call


def test_a_table_is_inspected_compacted_and_folded(lakehand, uri, delta_rs_options):
    before = read_sorted(uri, storage_options=delta_rs_options)
    assert lakehand("inspect", uri)["file_count"] == 8
    report = lakehand("compact", uri, "--engine", "local")
    assert (report["files_after"], report["proof"]["rows"]) == (2, 40)
    assert lakehand("checkpoint", uri)["outcome"] == "committed"
    assert lakehand("inspect", uri)["health"]["score"] == 100
    assert read_sorted(uri, storage_options=delta_rs_options).equals(before)


def test_nothing_is_left_behind(lakehand, uri, s3_server):
    lakehand("compact", uri, "--engine", "local")
    root = s3_server.directory / uri.rpartition("/")[2]
    left = [file for file in (root / "_lakehand").rglob("*") if file.is_file()]
    assert left == []
    assert len(list(root.rglob("*.parquet"))) == 8 + 2
