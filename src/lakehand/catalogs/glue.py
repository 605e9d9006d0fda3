"""The data catalog of AWS Glue."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehand.catalogs.catalog_contract import Access, CatalogTable
from lakehand.catalogs.spark_entries import entry_format, entry_location
from lakehand.errors import AccessDeniedError, CatalogError, NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken"})
_DENIED = _EXPIRED | frozenset({
    "AccessDeniedException", "AccessDenied", "UnrecognizedClientException",
    "InvalidSignatureException", "InvalidClientTokenId",
})  # fmt: skip
_DENIED_STATUS = frozenset({401, 403})


class GlueCatalog:
    """Tables of an account and region, by database and name."""

    name = "glue"
    levels = 2

    def __init__(self, client: Any, *, catalog_id: str | None = None) -> None:
        self._client = client
        self._account = {"CatalogId": catalog_id} if catalog_id else {}

    def find(self, names: tuple[str, ...]) -> CatalogTable | None:
        database, table = names
        with _explained():
            try:
                found = self._client.get_table(DatabaseName=database, Name=table, **self._account)
            except self._client.exceptions.EntityNotFoundException:
                return None
        return _entry(found["Table"])

    def tables(self) -> Iterator[CatalogTable]:
        with _explained():
            databases = self._client.get_paginator("get_databases").paginate(**self._account)
            names = [entry["Name"] for page in databases for entry in page["DatabaseList"]]
        for name in names:
            pages = self._client.get_paginator("get_tables")
            with _explained():
                for page in pages.paginate(DatabaseName=name, **self._account):
                    yield from map(_entry, page["TableList"])

    def access(self, table: CatalogTable) -> Access:  # noqa: ARG002
        """Return nothing: the credentials of AWS are those of its files."""
        return Access()


def open_glue() -> GlueCatalog:
    """Connect with the credentials and the region of the environment or of a profile."""
    try:
        import botocore.session
        from botocore import exceptions
    except ImportError as error:
        message = "AWS Glue needs botocore, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[aws]"') from error
    session = botocore.session.Session()
    region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    try:
        client = session.create_client("glue", region_name=region)
    except exceptions.NoRegionError:
        message = "the region of AWS Glue is not set"
        raise CatalogError(message, hint="set AWS_REGION, or a region in the profile") from None
    return GlueCatalog(client, catalog_id=os.environ.get("GLUE_CATALOG_ID"))


def _entry(found: Mapping[str, Any]) -> CatalogTable:
    storage = found.get("StorageDescriptor") or {}
    parameters = found.get("Parameters") or {}
    details = (storage.get("SerdeInfo") or {}).get("Parameters") or {}
    return CatalogTable(
        names=(found["DatabaseName"], found["Name"]),
        format=entry_format(parameters, storage.get("InputFormat")),
        is_view=found.get("TableType") == "VIRTUAL_VIEW",
        location=entry_location(storage.get("Location"), details, parameters),
    )


@contextmanager
def _explained() -> Iterator[None]:
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        said = error.response.get("Error", {})
        message = f"AWS Glue refused the request: {said.get('Message') or said.get('Code')}"
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if said.get("Code") in _DENIED or status in _DENIED_STATUS:
            hint = "glue:GetTable, glue:GetTables and glue:GetDatabases are needed"
            if said.get("Code") in _EXPIRED:
                hint = "the credentials have expired; log in again (`aws sso login`)"
            raise AccessDeniedError(
                message, operation="catalog", store_code=said.get("Code"), hint=hint
            ) from None
        raise CatalogError(message) from None
    except exceptions.NoCredentialsError:
        raise AccessDeniedError(
            "no credentials were found for AWS Glue",
            operation="catalog",
            hint="log in (`aws sso login`), or set AWS_PROFILE or AWS_ACCESS_KEY_ID",
        ) from None
    except exceptions.BotoCoreError as error:
        raise CatalogError(f"AWS Glue cannot be reached: {error}") from None
