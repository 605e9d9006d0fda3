"""Connection options: from the caller, the URL and the environment variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from lakehand.errors import ValidationError
from lakehand.storage.aws_credentials import RenewedCredentials, find_aws_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.storage.location import Location

_CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
    "proxy_excludes", "read_timeout", "root_certificate", "timeout", "user_agent",
})  # fmt: skip
_BOOLEAN_CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "http1_only", "http2_only",
})  # fmt: skip
# Connecting detects a dead endpoint, the read timeout a stalled one; a large transfer that makes
# progress may take longer.
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "20s", "timeout": "10min"}

_PREFIXES = {"s3": ("aws_",), "r2": ("aws_", "r2_"), "az": ("azure_storage_", "azure_")}
_PREFIXES |= {"abfss": _PREFIXES["az"], "gs": ("google_",)}
# Names that other tools use for the same option.
_AZURE_ALIASES = {"account": "account_name", "key": "account_key", "sas_token": "sas_key"}
_ALIASES = {
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "token": "session_token",
    "default_region": "region",
    # As delta-rs names them.
    "s3_locking_provider": "locking_provider",
    "delta_dynamo_table_name": "locking_table",
    "endpoint_url_dynamodb": "locking_endpoint",
    "region_dynamodb": "locking_region",
    "access_key_id_dynamodb": "locking_access_key_id",
    "secret_access_key_dynamodb": "locking_secret_access_key",
    "session_token_dynamodb": "locking_session_token",
}
_S3_ENVIRONMENT = (
    "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "DEFAULT_REGION", "REGION",
    "ENDPOINT_URL", "ENDPOINT_URL_S3", "ALLOW_HTTP", "SKIP_SIGNATURE", "S3_LOCKING_PROVIDER",
    "ENDPOINT_URL_DYNAMODB", "REGION_DYNAMODB", "ACCESS_KEY_ID_DYNAMODB",
    "SECRET_ACCESS_KEY_DYNAMODB", "SESSION_TOKEN_DYNAMODB",
)  # fmt: skip
_ENVIRONMENT = {
    "s3": (*(f"AWS_{name}" for name in _S3_ENVIRONMENT), "DELTA_DYNAMO_TABLE_NAME"),
    "r2": (
        *(f"AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")),
        *(f"R2_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")),
        "R2_ACCOUNT_ID", "R2_JURISDICTION",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_CLIENT_ID", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_STORAGE_TENANT_ID",
        "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR",
        # As Azure's own tools name them.
        "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
}  # fmt: skip
_ENVIRONMENT["abfss"] = _ENVIRONMENT["az"]
#: Certificates and JSON, which contain line breaks.
_MANY_LINES = frozenset({"proxy_ca_certificate", "root_certificate", "service_account_key"})
_R2_HOST = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)?")
_LOCKING = "locking_"
_S3_CREDENTIALS = ("access_key_id", "secret_access_key", "session_token")


class Options(dict[str, str]):
    """Options by name. They may contain secrets, so only the names are ever shown."""

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self))})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """All connection options, including secrets: it may be pickled, never printed."""

    #: Options, with the names of obstore for the kind of store.
    config: Options = field(default_factory=Options)
    #: Options of the HTTP client.
    client: Mapping[str, str | bool] = field(default_factory=dict, repr=False)
    #: Of a profile of AWS or of a catalog, if the options hold no keys.
    credentials: RenewedCredentials | None = field(default=None, repr=False)
    #: What commits are put by, if not by the store alone: provider, and how it is reached.
    locking: Options = field(default_factory=Options, repr=False)

    def as_options(self) -> Options:
        """Return options for other libraries, with the keys that are valid now."""
        options = Options(self.config | {name: str(value) for name, value in self.client.items()})
        if self.credentials is not None:
            keys = self.credentials.current()
            options["access_key_id"] = keys.access_key_id
            options["secret_access_key"] = keys.secret_access_key
            options |= {"session_token": keys.session_token} if keys.session_token else {}
        return options

    @property
    def endpoint(self) -> str | None:
        return self.config.get("endpoint")


def connect_options(
    location: Location,
    options: Mapping[str, str] | None,
    *,
    environment: Mapping[str, str] | None = None,
    credentials: RenewedCredentials | None = None,
) -> Connection:
    """Merge options (first), the URL and the environment (last) into one connection.

    The environment is read now, so that a pickled store carries its credentials to processes with
    another environment.
    """
    given = _without_empty(_normalised(location.scheme, options or {}))
    surroundings = _from_environment(location.scheme, environment)
    if credentials or any(name in given for name in (*_S3_CREDENTIALS, "profile")):
        # An access key from one source and a secret key from another would fail later with an
        # unclear error. A profile that is asked for by name is used, whatever the environment has.
        surroundings = {k: v for k, v in surroundings.items() if k not in _S3_CREDENTIALS}
    merged = {**surroundings, **location.options, **given}
    if location.scheme == "s3" and credentials is None:
        variables = os.environ if environment is None else environment
        credentials, of_profile = find_aws_profile(merged, variables)
        merged = {**of_profile, **merged}
        merged.pop("profile", None)
    if location.scheme == "r2":
        merged = _with_r2_endpoint(merged)
    locking = {name: merged.pop(name) for name in [*merged] if name.startswith(_LOCKING)}
    client: dict[str, str | bool] = dict(_TIMEOUTS)
    for name in _CLIENT_OPTIONS & merged.keys():
        value = merged.pop(name)
        client[name] = _is_true(value) if name in _BOOLEAN_CLIENT_OPTIONS else value
    _check_endpoint(merged.get("endpoint"), allow_http=bool(client.get("allow_http")))
    return Connection(
        config=Options(merged),
        client=client,
        credentials=credentials,
        locking=Options({name.removeprefix(_LOCKING): locking[name] for name in locking}),
    )


def _normalised(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, value in options.items():
        short = name.lower()
        for prefix in _PREFIXES.get(scheme, ()):
            short = short.removeprefix(prefix)
        aliases = _ALIASES if scheme in {"s3", "r2"} else _AZURE_ALIASES
        known = aliases.get(short, short)
        names[known] = _printable(known, str(value))
    return names


def _printable(name: str, value: str) -> str:
    """Return a value without the trailing newline of secret files.

    The HTTP client cannot send other control characters, and would panic.
    """
    value = value.strip()
    if name not in _MANY_LINES and not value.isprintable():
        raise ValidationError(
            f"the option {name} contains a control character",
            field=name,
            hint="remove line breaks and other control characters",
        )
    return value


def _without_empty(given: dict[str, str]) -> dict[str, str]:
    """Reject empty options, except the session token, which many sets of keys do not have."""
    for name, value in given.items():
        if not value and name != "session_token":
            hint = "remove it, or set a value"
            raise ValidationError(f"the option {name} is empty", field=name, hint=hint)
    return {name: value for name, value in given.items() if value}


def _from_environment(scheme: str, environment: Mapping[str, str] | None) -> dict[str, str]:
    variables = os.environ if environment is None else environment
    found = {name: variables[name] for name in _ENVIRONMENT[scheme] if variables.get(name)}
    if "R2_ACCESS_KEY_ID" in found:
        found = {name: value for name, value in found.items() if not name.startswith("AWS_")}
    return {name: value for name, value in _normalised(scheme, found).items() if value}


def _with_r2_endpoint(merged: dict[str, str]) -> dict[str, str]:
    merged = dict(merged)
    account = merged.pop("account_id", None) or merged.pop("account", None)
    jurisdiction = merged.pop("jurisdiction", None)
    merged.pop("account", None)
    merged.setdefault("region", "auto")
    if "endpoint" in merged:
        return merged
    if not account:
        raise ValidationError(
            "the R2 account is missing",
            field="account_id",
            hint="give the option account_id (or set R2_ACCOUNT_ID), or write"
            " r2://<account>.r2.cloudflarestorage.com/<bucket>/<path>",
        )
    host = f"{account}.{jurisdiction}" if jurisdiction else account
    if not _R2_HOST.fullmatch(host):
        message = "account_id and jurisdiction consist of letters, digits and hyphens"
        raise ValidationError(message, field="account_id")
    return {**merged, "endpoint": f"https://{host}.r2.cloudflarestorage.com"}


def _is_true(value: str) -> bool:
    return value.strip().lower() in {"true", "1", "yes", "on"}


def _url_parts(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is not a URL, or its port is out of range."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return None if any(map(str.isspace, url)) else parts


def _check_endpoint(endpoint: str | None, *, allow_http: bool) -> None:
    if endpoint is None:
        return
    parts = _url_parts(endpoint)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValidationError(
            "the endpoint is not a URL such as https://host:port", field="endpoint", value=None
        )
    if parts.username or parts.password:
        raise ValidationError("the endpoint contains credentials", field="endpoint", value=None)
    if parts.scheme == "http" and not allow_http:
        raise ValidationError(
            f"the endpoint {endpoint} is not encrypted",
            field="endpoint",
            value=endpoint,
            hint="use https://, or set the option allow_http to true",
        )
