"""A Hive metastore, over Thrift."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakehand.catalogs.catalog_contract import Access, CatalogTable
from lakehand.catalogs.spark_entries import entry_format, entry_location
from lakehand.errors import AccessDeniedError, CatalogError, ConfigError, NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PORT = 9083
_TIMEOUT_SECONDS = 30.0
#: Entries in one request.
_BATCH = 500


class HiveCatalog:
    """Tables of a metastore, by database and name."""

    name = "hive"
    levels = 2

    def __init__(self, addresses: tuple[tuple[str, int], ...]) -> None:
        self._addresses = addresses

    @classmethod
    def from_uris(cls, uris: str) -> HiveCatalog:
        """Connect to the first of some `thrift://host:port`, divided by commas, that answers."""
        addresses = []
        for uri in filter(None, map(str.strip, uris.split(","))):
            parts = urlsplit(uri if "://" in uri else f"thrift://{uri}")
            try:
                address = parts.hostname, parts.port or _PORT
            except ValueError:
                address = None, _PORT
            if parts.scheme != "thrift" or not address[0]:
                message = f"{uri!r} is not the address of a metastore, thrift://host:port"
                raise ConfigError(message, field="HIVE_METASTORE_URI")
            addresses.append((address[0], address[1]))
        return cls(tuple(addresses))

    def find(self, names: tuple[str, ...]) -> CatalogTable | None:
        database, table = names
        with self._connected() as (client, types):
            try:
                return _entry(client.get_table(database, table))
            except types.NoSuchObjectException:
                return None

    def tables(self) -> Iterator[CatalogTable]:
        with self._connected() as (client, _types):
            for database in client.get_all_databases():
                names = client.get_all_tables(database)
                for first in range(0, len(names), _BATCH):
                    found = client.get_table_objects_by_name(database, names[first:][:_BATCH])
                    yield from map(_entry, found)

    def access(self, table: CatalogTable) -> Access:  # noqa: ARG002
        """Return nothing: a metastore hands out no credentials."""
        return Access()

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        thrift, service, types = _thrift()
        transport, client = self._open(thrift, service)
        try:
            yield client, types
        except types.MetaException as error:
            message = f"the metastore refused the request: {error.message}"
            if "ermission" in (error.message or ""):
                raise AccessDeniedError(message, operation="catalog") from None
            raise CatalogError(message) from None
        except thrift.TException as error:
            raise CatalogError(f"the metastore ended the connection: {error}") from None
        finally:
            transport.close()

    def _open(self, thrift: Any, service: Any) -> tuple[Any, Any]:
        for host, port in self._addresses:
            socket = thrift.TSocket.TSocket(host, port)
            socket.setTimeout(_TIMEOUT_SECONDS * 1000)
            transport = thrift.TTransport.TBufferedTransport(socket)
            try:
                transport.open()
            except thrift.TTransport.TTransportException:
                continue
            return transport, service.Client(thrift.TBinaryProtocol.TBinaryProtocol(transport))
        tried = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        raise CatalogError(
            f"no metastore answers at {tried}", hint="check HIVE_METASTORE_URI and the network"
        )


def open_hive() -> HiveCatalog:
    """Connect to the metastore of HIVE_METASTORE_URI."""
    uris = os.environ.get("HIVE_METASTORE_URI")
    if not uris:
        raise ConfigError(
            "the address of the Hive metastore is not set",
            field="HIVE_METASTORE_URI",
            hint="set HIVE_METASTORE_URI to thrift://host:port",
        )
    return HiveCatalog.from_uris(uris)


def _entry(found: Any) -> CatalogTable:
    storage, parameters = found.sd, found.parameters or {}
    details = (storage.serdeInfo.parameters or {}) if storage and storage.serdeInfo else {}
    return CatalogTable(
        names=(found.dbName, found.tableName),
        format=entry_format(parameters, storage.inputFormat if storage else None),
        is_view=found.tableType == "VIRTUAL_VIEW",
        location=entry_location(storage.location if storage else None, details, parameters),
    )


def _thrift() -> tuple[Any, Any, Any]:
    try:
        import thrift.Thrift
        from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
        from thrift.protocol import TBinaryProtocol
        from thrift.transport import TSocket, TTransport
    except ImportError as error:
        message = "a Hive metastore needs pymetastore, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[hive]"') from error
    library = _Thrift(TBinaryProtocol, TSocket, TTransport, thrift.Thrift.TException)
    return library, ThriftHiveMetastore, ttypes


class _Thrift:
    """The parts of Thrift that are used, imported when they are needed."""

    def __init__(self, protocol: Any, socket: Any, transport: Any, error: Any) -> None:
        self.TBinaryProtocol = protocol
        self.TSocket = socket
        self.TTransport = transport
        self.TException = error
