"""Connection options from a Spark session: what Hadoop's file systems were told, `fs.s3a.*`.

The session has been told where the store is and with which credentials; nothing is said twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.storage import Location

    Lookup = Callable[[str], str | None]

_S3A = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
_AMAZON = re.compile(
    r"(?:https?://)?s3(?:[.-](?P<region>[a-z]{2}-[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?/?"
)
_TENANT = re.compile(r"https://[^/]+/(?P<tenant>[^/]+)/oauth2/")
_LOG_STORE = "S3DynamoDBLogStore"
_KEY_FILES = (
    "fs.gs.auth.service.account.json.keyfile",
    "google.cloud.auth.service.account.json.keyfile",
)


def session_options(spark: Any, location: Location) -> dict[str, str]:
    """Return the connection options that a session has for the store of `location`."""
    translate = _TRANSLATORS.get(location.scheme)
    return {} if translate is None else translate(_lookup_of(spark), location)


def _lookup_of(spark: Any) -> Lookup:
    """Return what finds an option of Hadoop: of the session, of its context, or from its start."""
    entries: Mapping[str, str] = spark.conf.getAll
    context = getattr(spark, "_jsc", None)  # a session of Spark Connect has none
    hadoop = context.hadoopConfiguration() if context is not None else None

    def find(name: str) -> str | None:
        value = entries.get(name)
        if value is None and hadoop is not None:
            value = hadoop.get(name)
        return value or entries.get(f"spark.hadoop.{name}") or None

    return find


def _s3_options(find: Lookup, location: Location) -> dict[str, str]:
    def of_bucket(name: str) -> str | None:
        return find(f"fs.s3a.bucket.{location.container}.{name}") or find(f"fs.s3a.{name}")

    options = {ours: value for theirs, ours in _S3A.items() if (value := of_bucket(theirs))}
    if "access_key_id" not in options or "secret_access_key" not in options:
        options = {name: value for name, value in options.items() if name == "region"}
    if endpoint := of_bucket("endpoint"):
        options |= _endpoint_options(endpoint, of_bucket, options)
    return options | _locking_options(find)


def _locking_options(find: Lookup) -> dict[str, str]:
    """Return the DynamoDB table that the session's log store commits through, if it does."""
    names = (f"spark.delta.logStore.{scheme}.impl" for scheme in ("s3a", "s3"))
    if not any((find(name) or "").endswith(_LOG_STORE) for name in names):
        return {}

    def of_log_store(name: str, default: str) -> str:
        name = f"io.delta.storage.{_LOG_STORE}.ddb.{name}"
        return find(f"spark.{name}") or find(name) or default

    return {
        "locking_provider": "dynamodb",
        "locking_table": of_log_store("tableName", "delta_log"),
        "locking_region": of_log_store("region", "us-east-1"),
    }


def _endpoint_options(endpoint: str, find: Lookup, options: Mapping[str, str]) -> dict[str, str]:
    if amazon := _AMAZON.fullmatch(endpoint):
        region = amazon["region"]
        return {"region": region} if region and "region" not in options else {}
    if "://" not in endpoint:
        is_encrypted = (find("connection.ssl.enabled") or "true").lower() == "true"
        endpoint = f"{'https' if is_encrypted else 'http'}://{endpoint}"
    found = {"endpoint": endpoint}
    if endpoint.startswith("http://"):
        found["allow_http"] = "true"
    if (style := find("path.style.access")) is not None:
        found["virtual_hosted_style_request"] = str(style.lower() != "true").lower()
    return found


def _azure_options(find: Lookup, location: Location) -> dict[str, str]:
    host = location.container.partition("@")[2]
    account = location.options.get("account_name")
    if not host or not account:
        return {}
    hosts = (host, f"{account}.dfs.core.windows.net", f"{account}.blob.core.windows.net")

    def of_account(name: str) -> str | None:
        found = (find(f"{name}.{host}") for host in hosts)
        return next((value for value in found if value), None)

    def oauth(name: str) -> str | None:
        name = f"fs.azure.account.oauth2.client.{name}"
        return of_account(name) or find(name)

    tenant = _TENANT.match(oauth("endpoint") or "")
    options = {
        "account_key": of_account("fs.azure.account.key"),
        "sas_key": of_account("fs.azure.sas.fixed.token"),
        "client_id": oauth("id"),
        "client_secret": oauth("secret"),
        "tenant_id": tenant["tenant"] if tenant else None,
    }
    return {name: value for name, value in options.items() if value}


def _gcs_options(find: Lookup, _location: Location) -> dict[str, str]:
    path = next((value for name in _KEY_FILES if (value := find(name))), None)
    return {"service_account": path} if path else {}


_TRANSLATORS: dict[str, Callable[[Lookup, Location], dict[str, str]]] = {
    "s3": _s3_options,
    "abfss": _azure_options,
    "gs": _gcs_options,
}
