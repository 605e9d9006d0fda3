"""Unity Catalog over its REST interface: the open-source server, and Databricks."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from lakehand.catalogs.catalog_contract import Access, CatalogTable
from lakehand.errors import AccessDeniedError, CatalogError, ConfigError, NotInstalledError
from lakehand.storage.aws_credentials import AccessKeys, RenewedCredentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_API = "/api/2.1/unity-catalog"
_PAGE = 200
_TIMEOUT_SECONDS = 30.0
_OK, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 400, 401, 403, 404
_VIEWS = frozenset({"VIEW", "MATERIALIZED_VIEW", "METRIC_VIEW"})
#: Vended keys are renewed this long before they expire.
_MARGIN = timedelta(minutes=5)


class UnityCatalog:
    """Tables of a server, by catalog, schema and name."""

    name = "unity"
    levels = 3

    def __init__(self, uri: str, token: str | None = None) -> None:
        self._uri = uri.rstrip("/")
        self._token = token

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> UnityCatalog:
        uri = environment.get("UNITY_CATALOG_URI") or environment.get("DATABRICKS_HOST")
        if not uri:
            raise ConfigError(
                "the address of Unity Catalog is not set",
                field="UNITY_CATALOG_URI",
                hint="set UNITY_CATALOG_URI and UNITY_CATALOG_TOKEN, or DATABRICKS_HOST and"
                " DATABRICKS_TOKEN",
            )
        uri = uri if "://" in uri else f"https://{uri}"
        parts = urlsplit(uri)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            message = "UNITY_CATALOG_URI is not a URL such as https://host:port"
            raise ConfigError(message, field="UNITY_CATALOG_URI")
        token = environment.get("UNITY_CATALOG_TOKEN") or environment.get("DATABRICKS_TOKEN")
        return cls(uri, token)

    def __repr__(self) -> str:
        return f"UnityCatalog({self._uri!r})"

    def find(self, names: tuple[str, ...]) -> CatalogTable | None:
        answer = self._get(f"/tables/{quote('.'.join(names), safe='')}")
        return None if answer is None else _entry(answer)

    def tables(self) -> Iterator[CatalogTable]:
        for catalog in self._list("catalogs", {}):
            for schema in self._list("schemas", {"catalog_name": catalog["name"]}):
                place = {"catalog_name": catalog["name"], "schema_name": schema["name"]}
                yield from map(_entry, self._list("tables", place))

    def access(self, table: CatalogTable) -> Access:
        """Return the credentials that the catalog vends; nothing where it vends none."""
        scheme = urlsplit(table.location or "").scheme
        if table.table_id is None or scheme in {"", "file"}:
            return Access()
        vended = self.vend(table.table_id)
        if vended is None:
            return Access()
        if sas := vended.get("azure_user_delegation_sas"):
            return Access(options={"sas_key": sas["sas_token"]})
        if google := vended.get("gcp_oauth_token"):
            return Access(options={"bearer_token": google["oauth_token"]})
        if vended.get("aws_temp_credentials"):
            return Access(credentials=UnityCredentials(table.table_id, _keys(vended), self))
        return Access()

    def vend(self, table_id: str) -> dict[str, Any] | None:
        """Ask for credentials to write, or else to read; None if the server vends none."""
        for operation in ("READ_WRITE", "READ"):
            body = {"table_id": table_id, "operation": operation}
            try:
                return self._request("POST", "/temporary-table-credentials", body)
            except AccessDeniedError:
                if operation == "READ":
                    raise
            except CatalogError as error:
                # The open-source server answers so for a bucket that it has no keys of.
                if error.attributes.get("status") != _BAD_REQUEST:
                    raise
                return None
        return None

    def _list(self, kind: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            page = {**query, "max_results": str(_PAGE), **({"page_token": token} if token else {})}
            answer = self._get(f"/{kind}?{urlencode(page)}") or {}
            yield from answer.get(kind) or ()
            token = answer.get("next_page_token")
            if not token:
                return

    def _get(self, path: str) -> dict[str, Any] | None:
        return self._request("GET", path)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return a document; None if the server has nothing of that name."""
        urllib3 = _urllib3()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            answer = urllib3.request(
                method,
                f"{self._uri}{_API}{path}",
                json=body,
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                redirect=False,  # it would take the token elsewhere
                retries=urllib3.Retry(3, backoff_factor=0.2, redirect=0, status=0),
            )
        except urllib3.exceptions.HTTPError as error:
            reason = type(error).__name__
            raise CatalogError(
                f"the catalog at {self._uri} cannot be reached: {reason}",
                hint="check UNITY_CATALOG_URI and the network",
            ) from None
        return self._document(answer.status, answer.data)

    def _document(self, status: int, data: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(data or b"{}")
        except ValueError:
            found = None
        if status == _OK and isinstance(found, dict):
            return found
        if status == _NOT_FOUND:
            return None
        message = found.get("message") if isinstance(found, dict) else None
        said = f": {str(message)[:300]}" if message else ""
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            hint = "check UNITY_CATALOG_TOKEN" if status == _UNAUTHORIZED else "ask for permission"
            raise AccessDeniedError(
                f"the catalog at {self._uri} refused the request ({status}){said}",
                operation="catalog",
                status=status,
                hint=hint,
            )
        message = f"the catalog at {self._uri} answered with {status}{said}"
        raise CatalogError(message, status=status)


class UnityCredentials(RenewedCredentials):
    """Keys for one table, vended by the catalog for about an hour."""

    def __init__(
        self, table_id: str | None, keys: AccessKeys | None, catalog: UnityCatalog
    ) -> None:
        super().__init__(table_id, keys)
        self._catalog = catalog

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self.current(), self._catalog)

    def fetch(self) -> AccessKeys | None:
        vended = self._catalog.vend(self._source or "")
        return _keys(vended) if vended else None


def _keys(vended: Mapping[str, Any]) -> AccessKeys:
    found = vended["aws_temp_credentials"]
    expiry = vended.get("expiration_time")  # in milliseconds
    until = datetime.fromtimestamp(expiry / 1000, UTC) if expiry else None
    return AccessKeys(
        access_key_id=found["access_key_id"],
        secret_access_key=found["secret_access_key"],
        session_token=found.get("session_token"),
        valid_until=until - _MARGIN if until else datetime.now(UTC) + timedelta(minutes=10),
    )


def _entry(found: Mapping[str, Any]) -> CatalogTable:
    return CatalogTable(
        names=(found["catalog_name"], found["schema_name"], found["name"]),
        format=str(found.get("data_source_format") or "").lower(),
        is_view=found.get("table_type") in _VIEWS,
        location=found.get("storage_location"),
        table_id=found.get("table_id"),
    )


def _urllib3() -> Any:
    try:
        import urllib3
    except ImportError as error:
        message = "Unity Catalog needs urllib3, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[unity]"') from error
    return urllib3


def open_unity() -> UnityCatalog:
    """Connect as the environment variables say."""
    return UnityCatalog.from_environment(os.environ)
