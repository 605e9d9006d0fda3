"""Tables of a real Unity Catalog server, at the address in LAKEHAND_UNITY_SERVER.

The server is not in the package registries, so it has to be built from its sources
(docs/contributing/README.md says how). LAKEHAND_UNITY_TOKEN is its token if authorization is on.
"""

from __future__ import annotations

import os
import uuid

import pyarrow as pa
import pytest
import urllib3

import lakehand
from lakehand.catalogs import locate, open_catalog
from lakehand.cli.main import run
from lakehand.errors import AccessDeniedError, CatalogError

SERVER = os.environ.get("LAKEHAND_UNITY_SERVER")
TOKEN = os.environ.get("LAKEHAND_UNITY_TOKEN")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not SERVER, reason="LAKEHAND_UNITY_SERVER names no server"),
]
COLUMN = {
    "name": "id",
    "type_text": "bigint",
    "type_json": '{"name":"id","type":"long","nullable":true,"metadata":{}}',
    "type_name": "LONG",
    "position": 0,
    "nullable": True,
}


def post(kind, **members):
    url = f"{SERVER}/api/2.1/unity-catalog/{kind}"
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    answer = urllib3.request("POST", url, json=members, headers=headers)
    assert answer.status == 200, answer.data
    return answer.json()


def enter(catalog, name, format_name, location):
    post(
        "tables",
        name=name,
        catalog_name=catalog,
        schema_name="sales",
        table_type="EXTERNAL",
        data_source_format=format_name,
        storage_location=location,
        columns=[COLUMN],
    )


@pytest.fixture
def schema(tmp_path, monkeypatch):
    """Return the name of a schema with a Delta table, which has three files, and a CSV table."""
    catalog = f"c{uuid.uuid4().hex}"
    monkeypatch.setenv("UNITY_CATALOG_URI", SERVER)
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN or "")
    table = lakehand.create_table(tmp_path / "events", pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    post("catalogs", name=catalog)
    post("schemas", name="sales", catalog_name=catalog)
    enter(catalog, "events", "DELTA", (tmp_path / "events").as_uri())
    enter(catalog, "plain", "CSV", (tmp_path / "plain").as_uri())
    return f"{catalog}.sales"


def test_a_table_is_compacted_and_vacuumed_by_its_name(schema, tmp_path):
    assert run(["compact", f"unity:{schema}.events", "--min-files", "2"]) == 0
    assert lakehand.open_table(tmp_path / "events").snapshot().file_count == 1
    assert run(["vacuum", f"{schema}.events", "--dry-run"]) == 0


def test_tables_are_listed(schema):
    found = {table.name: table.is_maintainable for table in open_catalog("unity").tables()}
    assert found[f"{schema}.events"]
    assert not found[f"{schema}.plain"]


def test_own_credentials_are_used_for_buckets_that_the_server_does_not_know(schema):
    catalog, _ = schema.split(".")
    enter(catalog, "far", "DELTA", "s3://unknown/far")
    place = locate(f"unity:{schema}.far")
    assert (place.uri, place.access.credentials) == ("s3://unknown/far", None)


def test_what_is_no_delta_table_is_named(schema):
    for name, words in [(f"{schema}.plain", "format csv"), (f"{schema}.nope", "no table")]:
        with pytest.raises(CatalogError, match=words):
            lakehand.open_table(f"unity:{name}")
    with pytest.raises(CatalogError, match="no table"):
        lakehand.open_table("unity:nowhere.sales.events")


@pytest.mark.skipif(not TOKEN, reason="the server checks no token")
@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_missing_or_wrong_token_says_what_to_check(schema, monkeypatch, token):
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", token)
    with pytest.raises(AccessDeniedError) as caught:
        lakehand.open_table(f"unity:{schema}.events")
    assert "UNITY_CATALOG_TOKEN" in caught.value.hint
