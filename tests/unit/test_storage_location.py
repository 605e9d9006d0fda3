from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakehand.errors import UnsafePathError, ValidationError
from lakehand.storage import parse_location, path_to_url
from lakehand.storage.location import parse_log_path


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("/data/events", "file:///data/events"),
        ("/data/events/", "file:///data/events"),
        ("/data/./x/../events", "file:///data/events"),
        (Path("/data/events"), "file:///data/events"),
        ("file:///data/events", "file:///data/events"),
        ("file://localhost/data/events", "file:///data/events"),
        ("file:/data/events", "file:///data/events"),
        ("/data/a b%20c#?", "file:///data/a%20b%2520c%23%3F"),
        ("file:///data/a%20b", "file:///data/a%20b"),
        ("/", "file:///"),
    ],
)
def test_path_to_url_local(uri, url):
    assert path_to_url(uri) == url
    assert path_to_url(url) == url


def test_a_relative_path_starts_at_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert parse_location("events").path == f"{tmp_path}/events"
    assert parse_location("a:b").path == f"{tmp_path}/a:b"


@pytest.mark.parametrize(
    ("uri", "url", "options"),
    [
        ("s3://lake/events", "s3://lake/events", {}),
        ("s3a://lake/events/", "s3://lake/events", {}),
        ("S3://lake", "s3://lake", {}),
        ("s3://lake/", "s3://lake", {}),
        ("s3://lake/a b%20c/d#e?f", "s3://lake/a b%20c/d#e?f", {}),
        ("s3://lake.s3.eu-west-1.amazonaws.com/e", "s3://lake/e", {"region": "eu-west-1"}),
        ("s3://lake.s3-us-west-2.amazonaws.com/e", "s3://lake/e", {"region": "us-west-2"}),
        ("s3://my.lake.s3.amazonaws.com/e", "s3://my.lake/e", {}),
        ("s3://lake.s3.cn-north-1.amazonaws.com.cn", "s3://lake", {"region": "cn-north-1"}),
        ("s3://l.s3.dualstack.eu-west-1.amazonaws.com/e", "s3://l/e", {"region": "eu-west-1"}),
        ("r2://lake/events", "r2://lake/events", {}),
        ("r2://abc.r2.cloudflarestorage.com/lake/e", "r2://lake/e", {"account": "abc"}),
        (
            "r2://abc.eu.r2.cloudflarestorage.com/lake/e",
            "r2://lake/e",
            {"account": "abc", "jurisdiction": "eu"},
        ),
    ],
)
def test_path_to_url_s3(uri, url, options):
    location = parse_location(uri)

    assert location.url == url
    assert dict(location.options) == options


@pytest.mark.parametrize(
    ("uri", "url", "options"),
    [
        ("az://container/events", "az://container/events", {}),
        ("abfs://container/events/", "abfss://container/events", {}),
        (
            "abfss://container@account.dfs.core.windows.net/events",
            "abfss://container@account.dfs.core.windows.net/events",
            {"account_name": "account"},
        ),
        (
            "wasbs://container@account.blob.core.windows.net/events",
            "abfss://container@account.dfs.core.windows.net/events",
            {"account_name": "account"},
        ),
    ],
)
def test_path_to_url_azure(uri, url, options):
    location = parse_location(uri)

    assert location.url == url
    assert dict(location.options) == options


def test_path_to_url_gcs():
    assert path_to_url("gs://lake/events/") == "gs://lake/events"
    assert path_to_url("gcs://lake/events") == "gs://lake/events"


def test_path_to_url_memory():
    assert path_to_url("memory://name/") == "memory://name"


@pytest.mark.parametrize(
    "uri", ["", "ftp://host/x", "dbfs://x", "s3://", "s3:///x", "file://host/x", "r2://a.r2.cloudflarestorage.com/"]
)  # fmt: skip
def test_what_is_no_place_for_a_table_is_refused(uri):
    with pytest.raises(ValidationError):
        parse_location(uri)


@pytest.mark.parametrize(
    "uri",
    ["s3://lake/../x", "s3://lake/a//b", "gs://lake/%2e%2e/x", "s3://l/\0", "file:///a%00", "/\0"],
)
def test_tricks_in_a_url_are_refused(uri):
    with pytest.raises(UnsafePathError):
        parse_location(uri)


def test_a_url_with_one_slash_is_no_path(tmp_path, monkeypatch):
    with pytest.raises(ValidationError) as caught:
        parse_location("s3:/lake/events")
    assert caught.value.hint == "write it as s3://bucket/path, with two slashes"
    with pytest.raises(ValidationError, match="dbfs:// is not a supported kind of store"):
        parse_location("dbfs:/mnt/lake")
    monkeypatch.chdir(tmp_path)
    assert parse_location("./s3:/x").path == parse_location(Path("s3:/x")).path


def test_credentials_in_a_url_are_refused_and_not_repeated():
    with pytest.raises(ValidationError) as raised:
        parse_location("s3://key:hush-hush@lake/events")

    assert "hush-hush" not in str(raised.value)
    assert "options" in raised.value.hint


def test_a_location_can_be_pickled():
    location = parse_location("s3://lake.s3.eu-west-1.amazonaws.com/e")

    assert pickle.loads(pickle.dumps(location)) == location


TABLE = parse_location("s3://lake/events")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("part-0.parquet", None),
        ("d=a:b/x", None),
        ("s3a://lake/events/x", "s3://lake/events/x"),
        ("/other/x", "s3://lake/other/x"),
        ("file:/tmp/a%20b", "file:///tmp/a%2520b"),
        ("file:///tmp/x", "file:///tmp/x"),
        ("gs://there/x", "gs://there/x"),
    ],
)
def test_paths_of_a_log_are_literal_and_know_their_bucket(path, url):
    location = parse_log_path(path, relative_to=TABLE)

    assert (location.url if location else None) == url


@pytest.mark.parametrize("path", ["dbfs:/mnt/x", "hdfs://namenode/x", "s3:/lake/x"])
def test_a_log_that_names_an_unknown_place_is_refused(path):
    with pytest.raises(ValidationError):
        parse_log_path(path, relative_to=TABLE)
