"""Tables of a real Hive metastore, entered as Spark enters them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

import lakehand
from lakehand.catalogs import open_catalog
from lakehand.cli.main import run
from lakehand.errors import CatalogError, ConfigError
from support.hive_metastore import run_metastore

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("hive")]
SCHEMA = pa.schema([("id", pa.int64())])
PLACEHOLDER = "file:/warehouse/events-__PLACEHOLDER__"
#: Where lakehand looks has been told; a port at which nothing listens comes first.
DEAD = "thrift://127.0.0.1:9"


class Metastore:
    """Enters tables as Spark's catalog does."""

    def __init__(self, uri):
        host, port = uri.removeprefix("thrift://").split(":")
        self._transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
        self._transport.open()
        self._client = ThriftHiveMetastore.Client(TBinaryProtocol(self._transport))

    def add_database(self, name, place):
        self._client.create_database(ttypes.Database(name=name, locationUri=place.as_uri()))

    def add(self, name, *, path=None, location=None, kind="EXTERNAL_TABLE", **parameters):
        details = {"path": path} if path else {}
        storage = ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name="id", type="bigint", comment="")],
            location=location,
            inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            serdeInfo=ttypes.SerDeInfo(parameters=details, serializationLib="x"),
        )
        table = ttypes.Table(
            tableName=name,
            dbName="sales",
            sd=storage,
            tableType=kind,
            parameters={"EXTERNAL": "TRUE", **parameters},
            partitionKeys=[],
            viewOriginalText="SELECT 1",
            viewExpandedText="SELECT 1",
        )
        self._client.create_table(table)

    def close(self):
        self._transport.close()


@pytest.fixture(scope="module")
def entered(tmp_path_factory):
    """Run a metastore with tables in it; yields its address and the table's path."""
    directory = tmp_path_factory.mktemp("hive")
    place = directory / "events"
    table = lakehand.create_table(place, SCHEMA)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    delta = {"spark.sql.sources.provider": "delta"}
    with run_metastore(directory) as uri:
        metastore = Metastore(uri)
        metastore.add_database("sales", directory)
        metastore.add(
            "events", path=place.as_uri(), location=f"{directory.as_uri()}/other", **delta
        )
        metastore.add("plain", location=(directory / "plain").as_uri())
        metastore.add("a_view", kind="VIRTUAL_VIEW")
        metastore.close()
        yield uri, place


@pytest.fixture(autouse=True)
def _address(entered, monkeypatch):
    monkeypatch.setenv("HIVE_METASTORE_URI", f"{DEAD},{entered[0]}")


def test_a_table_is_compacted_by_its_name(entered):
    assert run(["compact", "hive:sales.events", "--min-files", "2"]) == 0
    assert lakehand.open_table(entered[1]).snapshot().file_count == 1
    assert run(["vacuum", "hive:sales.events", "--dry-run"]) == 0


def test_what_is_no_delta_table_is_named():
    with pytest.raises(CatalogError, match=r"no table hive:sales\.nope"):
        lakehand.open_table("hive:sales.nope")
    with pytest.raises(CatalogError, match=r"no table hive:nowhere\.nope"):
        lakehand.open_table("hive:nowhere.nope")
    with pytest.raises(CatalogError, match="is a view"):
        lakehand.open_table("hive:sales.a_view")
    with pytest.raises(CatalogError, match="format sequencefileinputformat"):
        lakehand.open_table("hive:sales.plain")


def test_all_tables_are_listed():
    found = {table.name: table.is_maintainable for table in open_catalog("hive").tables()}
    assert found == {"sales.events": True, "sales.plain": False, "sales.a_view": False}


def test_a_wrong_address_is_named(monkeypatch):
    monkeypatch.setenv("HIVE_METASTORE_URI", DEAD)
    with pytest.raises(CatalogError, match="no metastore answers"):
        lakehand.open_table("hive:sales.events")
    monkeypatch.setenv("HIVE_METASTORE_URI", "http://host")
    with pytest.raises(ConfigError, match="thrift://host:port"):
        lakehand.open_table("hive:sales.events")
    monkeypatch.delenv("HIVE_METASTORE_URI")
    with pytest.raises(ConfigError, match="not set"):
        lakehand.open_table("hive:sales.events")
