"""Tables of AWS Glue, against moto's server."""

from __future__ import annotations

import botocore.session
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import lakehand
from lakehand.catalogs import open_catalog
from lakehand.catalogs.glue import GlueCatalog
from lakehand.cli.main import run
from lakehand.errors import AccessDeniedError, CatalogError

pytestmark = pytest.mark.server
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def glue(moto, monkeypatch, tmp_path):
    """Return a client of an empty catalog; lakehand finds the same one."""
    variables = {
        "AWS_ENDPOINT_URL_GLUE": moto,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "eu-west-1",
        "HOME": str(tmp_path),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    client = botocore.session.Session().create_client("glue", region_name="eu-west-1")
    client.create_database(DatabaseInput={"Name": "sales"})
    yield client
    client.delete_database(Name="sales")


def enter(glue, name, *, location=None, kind="EXTERNAL_TABLE", path=None, **parameters):
    details = {"Parameters": {"path": path}} if path else {}
    entry = {
        "Name": name,
        "TableType": kind,
        "Parameters": parameters,
        "StorageDescriptor": {"Location": location or "", "SerdeInfo": details},
    }
    glue.create_table(DatabaseName="sales", TableInput=entry)


@pytest.mark.parametrize(
    "parameters",
    [{"spark.sql.sources.provider": "delta"}, {"table_type": "DELTA"}, {"classification": "delta"}],
)
def test_a_table_is_compacted_by_its_name_whoever_entered_it(glue, tmp_path, parameters):
    table = lakehand.create_table(tmp_path / "events", SCHEMA)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    enter(glue, "events", location=(tmp_path / "events").as_uri(), **parameters)
    assert run(["compact", "glue:sales.events", "--min-files", "2"]) == 0
    assert table.snapshot().file_count == 1


def test_the_path_of_spark_wins_over_its_placeholder(glue):
    enter(
        glue,
        "events",
        location="s3://warehouse/events-__PLACEHOLDER__",
        path="s3://lake/events",
        **{"spark.sql.sources.provider": "delta"},
    )
    assert open_catalog("glue").find(("sales", "events")).location == "s3://lake/events"


def test_what_is_no_delta_table_is_named(glue):
    enter(glue, "a_view", kind="VIRTUAL_VIEW")
    enter(glue, "berg", location="s3://lake/berg", table_type="ICEBERG")
    for name, words in [("nope", "no table"), ("a_view", "is a view"), ("berg", "format iceberg")]:
        with pytest.raises(CatalogError, match=words):
            lakehand.open_table(f"glue:sales.{name}")


def test_all_tables_are_listed(glue):
    for number in range(120):
        enter(glue, f"t{number}", location=f"s3://lake/{number}", table_type="DELTA")
    found = list(open_catalog("glue").tables())
    assert len({table.name for table in found}) == 120
    assert all(table.is_maintainable for table in found)


def test_refused_requests_name_what_is_needed(glue):
    from botocore.exceptions import ClientError

    class Denied:
        exceptions = glue.exceptions

        def get_table(self, **_):
            code = {"Code": "AccessDeniedException", "Message": "not authorized: glue:GetTable"}
            raise ClientError({"Error": code}, "GetTable")

    with pytest.raises(AccessDeniedError, match="glue:GetTable") as caught:
        GlueCatalog(Denied()).find(("sales", "events"))
    assert "glue:GetDatabases" in caught.value.hint


def test_missing_credentials_and_region_say_what_to_set(glue, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDeniedError, match="no credentials"):
        lakehand.open_table("glue:sales.events")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(CatalogError, match="region"):
        lakehand.open_table("glue:sales.events")
