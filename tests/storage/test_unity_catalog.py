"""Tables of Unity Catalog by name, against a stand-in that answers as its OpenAPI says."""

from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakehand
from lakehand.catalogs import open_catalog, open_named_store
from lakehand.cli.main import run
from lakehand.errors import (
    AccessDeniedError,
    CatalogError,
    ConfigError,
    NotATableError,
    ValidationError,
)
from lakehand.service.config import SourceSection
from lakehand.service.discovery import discover
from lakehand.storage.aws_credentials import AccessKeys
from support.s3_server import ACCESS_KEY, SECRET_KEY
from support.unity_server import TOKEN, run_unity

pytestmark = pytest.mark.server
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def unity(monkeypatch):
    with run_unity() as server:
        monkeypatch.setenv("UNITY_CATALOG_URI", server.url)
        monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        yield server


def make_table(uri, **options):
    table = lakehand.create_table(uri, SCHEMA, **options)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    return table


def vend(unity, name, *, lifetime_seconds=3600):
    unity.vended[f"id-of-{name}"] = {
        "aws_temp_credentials": {
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "session_token": None,
        },
        "expiration_time": int((time.time() + lifetime_seconds) * 1000),
    }


def test_a_table_is_compacted_and_vacuumed_by_its_name(unity, tmp_path, capsys):
    table = make_table(tmp_path / "events")
    unity.add("main.sales.events", storage_location=(tmp_path / "events").as_uri())
    assert run(["compact", "unity:main.sales.events", "--min-files", "2"]) == 0
    assert table.snapshot().file_count == 1
    assert run(["vacuum", "unity:main.sales.events", "--dry-run"]) == 0
    assert lakehand.open_table("unity:main.sales.events").snapshot().version == 4
    assert TOKEN not in "".join(capsys.readouterr())


def test_a_bare_name_is_looked_up_in_the_only_catalog_in_use(unity, tmp_path, monkeypatch):
    make_table(tmp_path / "events")
    unity.add("main.sales.events", storage_location=(tmp_path / "events").as_uri())
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", "main.sales.events"]) == 0
    monkeypatch.setenv("HIVE_METASTORE_URI", "thrift://127.0.0.1:9")
    assert lakehand.open_table("main.sales.events").snapshot().version == 3, "Hive has two parts"
    with pytest.raises(CatalogError, match=r"no table unity:main\.sales\.evnts") as caught:
        lakehand.open_table("main.sales.evnts")
    assert "write ./main.sales.evnts" in caught.value.hint
    created = lakehand.create_table("main.sales.created", SCHEMA)
    assert created.url == (tmp_path / "main.sales.created").as_uri(), "nothing is entered"
    make_table(tmp_path / "main.sales.events").append(pa.table({"id": [9]}))
    assert lakehand.open_table("main.sales.events").snapshot().version == 4, "a path wins"


def test_a_bare_name_that_could_be_in_two_catalogs_or_none_gets_advice(
    unity, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIVE_METASTORE_URI", "thrift://127.0.0.1:9")
    monkeypatch.setenv("GLUE_CATALOG_ID", "1")
    with pytest.raises(NotATableError) as caught:
        lakehand.open_table("sales.events")
    assert "hive:sales.events or glue:sales.events" in caught.value.hint
    monkeypatch.delenv("UNITY_CATALOG_URI")
    with pytest.raises(NotATableError) as caught:
        lakehand.open_table("main.sales.events")
    assert "unity:main.sales.events" in caught.value.hint
    monkeypatch.setenv("LAKEHAND_CATALOG", "unity")
    with pytest.raises(ConfigError, match="address of Unity Catalog"):
        lakehand.open_table("main.sales.events")


def test_files_are_reached_with_what_the_catalog_vends(unity, s3_server):
    uri = s3_server.new_uri()
    make_table(uri, storage_options=s3_server.options)
    unity.add("main.sales.events", storage_location=uri)
    vend(unity, "main.sales.events")
    place = {"endpoint": s3_server.endpoint, "region": "us-east-1", "allow_http": "true"}
    table = lakehand.open_table("unity:main.sales.events", storage_options=place)
    table.compact(min_files=2)
    assert table.snapshot().file_count == 1


def test_vended_keys_are_renewed_also_where_a_task_runs(unity, s3_server, monkeypatch):
    uri = s3_server.new_uri()
    make_table(uri, storage_options=s3_server.options)
    unity.add("main.sales.events", storage_location=uri)
    vend(unity, "main.sales.events", lifetime_seconds=310)
    place = {"endpoint": s3_server.endpoint, "region": "us-east-1", "allow_http": "true"}
    store = open_named_store("unity:main.sales.events", place)
    moved = pickle.loads(pickle.dumps(store))
    before = len(unity.requests)
    assert moved.exists("_delta_log/00000000000000000000.json")
    assert len(unity.requests) == before
    later = datetime.fromtimestamp(time.time() + 60, UTC)
    monkeypatch.setattr(AccessKeys, "is_valid", property(lambda keys: keys.valid_until > later))
    vend(unity, "main.sales.events")
    assert moved.exists("_delta_log/00000000000000000000.json")
    assert len(unity.requests) == before + 1


def test_own_credentials_are_used_where_the_catalog_has_none(unity, s3_server):
    uri = s3_server.new_uri()
    make_table(uri, storage_options=s3_server.options)
    unity.add("main.sales.events", storage_location=uri)
    table = lakehand.open_table("unity:main.sales.events", storage_options=s3_server.options)
    assert table.snapshot().version == 3


def test_a_table_that_may_only_be_read_is_read(unity, s3_server):
    unity.add("main.sales.events", storage_location="s3://lake/x")
    vend(unity, "main.sales.events")
    unity.read_only.add("id-of-main.sales.events")
    open_named_store("unity:main.sales.events", {"region": "us-east-1"})
    assert unity.requests[-2:] == ["POST /temporary-table-credentials"] * 2


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"table_type": "VIEW", "data_source_format": None}, "is a view"),
        ({"data_source_format": "ICEBERG", "storage_location": "s3://x/y"}, "format iceberg"),
        ({}, "no location"),
    ],
)
def test_what_is_no_delta_table_is_named(unity, members, words):
    unity.add("main.sales.events", **members)
    with pytest.raises(CatalogError, match=words):
        lakehand.open_table("unity:main.sales.events")


def test_an_unknown_name_and_missing_permission_are_told_apart(unity):
    with pytest.raises(CatalogError, match=r"no table unity:main\.sales\.nope"):
        lakehand.open_table("unity:main.sales.nope")
    unity.add("main.sales.secret", hidden=True)
    with pytest.raises(AccessDeniedError, match="USE SCHEMA"):
        lakehand.open_table("unity:main.sales.secret")


def test_a_wrong_token_and_a_dead_server_say_what_to_check(unity, monkeypatch):
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", "of-yesterday")
    with pytest.raises(AccessDeniedError) as caught:
        lakehand.open_table("unity:main.sales.events")
    assert "of-yesterday" not in str(caught.value)
    assert "UNITY_CATALOG_TOKEN" in caught.value.hint
    monkeypatch.setenv("UNITY_CATALOG_URI", "http://127.0.0.1:9")
    with pytest.raises(CatalogError, match="cannot be reached"):
        lakehand.open_table("unity:main.sales.events")
    monkeypatch.delenv("UNITY_CATALOG_URI")
    with pytest.raises(ConfigError, match="not set"):
        lakehand.open_table("unity:main.sales.events")


@pytest.mark.parametrize("name", ["main.sales", "a.b.c.d", "main..events", "main.sales.", "", "`a"])
def test_a_name_of_another_form_is_refused(unity, name):
    with pytest.raises(ValidationError, match="not the name of a table"):
        lakehand.open_table(f"unity:{name}")


def test_all_tables_are_listed_page_by_page(unity):
    for number in range(5):
        unity.add(f"main.sales.t{number}", storage_location=f"s3://lake/{number}")
    unity.add("main.other.v", table_type="VIEW")
    found = {table.name: table.is_maintainable for table in open_catalog("unity").tables()}
    assert found == {**{f"main.sales.t{n}": True for n in range(5)}, "main.other.v": False}


def test_a_source_of_the_service_is_a_schema_of_the_catalog(unity, tmp_path, monkeypatch):
    for number in range(3):
        unity.add(f"main.sales.t{number}", storage_location=f"s3://lake/{number}/")
    unity.add("main.other.x", storage_location="s3://lake/x")
    source = SourceSection(
        name="unity", include=("unity:main.sales.*",), exclude=("unity:main.sales.t1",)
    )
    found = discover(source, lambda _: None)
    assert [(table.url, table.name) for table in found.tables] == [
        ("s3://lake/0", "main.sales.t0"),
        ("s3://lake/2", "main.sales.t2"),
    ]
    assert found.is_complete
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", "of-yesterday")
    assert not discover(source, lambda _: None).is_complete, "no table is gone for that"


def test_tables_of_a_catalog_are_registered_by_a_configuration_file(
    unity, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "events")
    unity.add("main.sales.events", storage_location=(tmp_path / "events").as_uri())
    (tmp_path / "lakehand.toml").write_text(
        "[[source]]\nname = 'unity'\ninclude = ['unity:main.sales.*']\n"
    )
    assert run(["tables", "discover"]) == 0
    assert run(["tables", "list"]) == 0
    assert "main.sales.events" in capsys.readouterr().out


def test_a_name_with_dots_stands_in_backticks(unity, tmp_path):
    make_table(tmp_path / "t")
    unity.tables["main.sales.a.b"] = {
        "catalog_name": "main",
        "schema_name": "sales",
        "name": "a.b",
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": (tmp_path / "t").as_uri(),
    }
    assert lakehand.open_table("unity:main.sales.`a.b`").snapshot().version == 3
