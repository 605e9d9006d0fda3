"""Tables of AWS Glue, against moto's server."""

from __future__ import annotations

import json
from pathlib import Path

import botocore.session
import pyarrow as pa
import pytest
import urllib3
from moto.server import ThreadedMotoServer

import lakehand
from lakehand.catalogs import open_catalog
from lakehand.catalogs.glue import GlueCatalog
from lakehand.cli.main import run
from lakehand.errors import AccessDeniedError, CatalogError

pytestmark = pytest.mark.server
SCHEMA = pa.schema([("id", pa.int64())])
POLICIES = Path(__file__).parents[2] / "deploy" / "iam"


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
    assert run(["vacuum", "glue:sales.events", "--dry-run"]) == 0


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


@pytest.fixture
def user(glue, moto, monkeypatch):
    """Return what lets a new user do some actions, and has them enforced."""
    iam = botocore.session.Session().create_client(
        "iam", region_name="eu-west-1", endpoint_url=moto
    )
    iam.create_user(UserName="maintainer")
    keys = iam.create_access_key(UserName="maintainer")["AccessKey"]

    def allow(statements):
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_user_policy(UserName="maintainer", PolicyName="p", PolicyDocument=document)
        enforce(moto, from_request=0)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])

    yield allow
    enforce(moto, from_request="inf")
    iam.delete_user_policy(UserName="maintainer", PolicyName="p")
    iam.delete_access_key(UserName="maintainer", AccessKeyId=keys["AccessKeyId"])
    iam.delete_user(UserName="maintainer")


def enforce(moto, *, from_request):
    """Have moto check permissions from some request on."""
    urllib3.request("POST", f"{moto}/moto-api/reset-auth", body=str(from_request))


def granted(*, without=None):
    policy = json.loads((POLICIES / "glue.json").read_text())["Statement"]
    return [
        # moto knows no resources of Glue, only actions.
        {**entry, "Resource": "*", "Action": [a for a in entry["Action"] if a != without]}
        for entry in policy
    ]


def test_the_policy_allows_to_find_and_to_list_tables(glue, user):
    enter(glue, "events", location="s3://lake/events", table_type="DELTA")
    user(granted())
    assert open_catalog("glue").find(("sales", "events")).is_maintainable
    assert [table.name for table in open_catalog("glue").tables()] == ["sales.events"]


@pytest.mark.parametrize("action", ["glue:GetTable", "glue:GetTables", "glue:GetDatabases"])
def test_a_refused_request_names_the_permission_that_is_missing(glue, user, action):
    enter(glue, "events", location="s3://lake/events", table_type="DELTA")
    user(granted(without=action))
    catalog = open_catalog("glue")
    with pytest.raises(AccessDeniedError, match=rf"{action}\b") as caught:
        catalog.find(("sales", "events")) if action == "glue:GetTable" else list(catalog.tables())
    assert action in caught.value.hint


def test_an_expired_credential_says_so(glue):
    from botocore.stub import Stubber

    stub = Stubber(glue)  # moto knows no time at which keys expire
    stub.add_client_error("get_table", "ExpiredTokenException", "The security token expired")
    stub.activate()
    with pytest.raises(AccessDeniedError) as caught:
        GlueCatalog(glue).find(("sales", "events"))
    stub.deactivate()
    assert "expired" in caught.value.hint


def test_missing_credentials_and_region_say_what_to_set(glue, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDeniedError, match="no credentials"):
        lakehand.open_table("glue:sales.events")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(CatalogError, match="region"):
        lakehand.open_table("glue:sales.events")
