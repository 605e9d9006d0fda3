"""obstore clients, made from a location and connection options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from obstore import exceptions as obstore_errors
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from lakehand.errors import StorageError, ValidationError
from lakehand.storage.error_translation import is_panic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.storage.connection_options import Connection
    from lakehand.storage.location import Location

_first_process: int | None = None


def require_own_process() -> None:
    """Raise if this process was forked from one that has used an object store.

    obstore's threads do not survive a fork: the first request would wait forever.
    """
    global _first_process  # noqa: PLW0603  one runtime per process
    process = os.getpid()
    if _first_process is None:
        _first_process = process
    if _first_process != process:
        raise StorageError(
            "this process was forked from one that had already used an object store",
            hint="start processes with the 'spawn' or 'forkserver' method",
        )


def open_client(
    location: Location, connection: Connection, *, retry: Mapping[str, Any]
) -> ObjectStore:
    """Create a client. No request is made yet, but invalid options raise an error."""
    container = location.container.partition("@")[0]
    settings: dict[str, Any] = {"client_options": connection.client, "retry_config": retry}
    if connection.credentials is not None:
        settings["credential_provider"] = connection.credentials
    try:
        return _OPENERS[location.scheme](container, connection.config, **settings)
    except obstore_errors.UnknownConfigurationKeyError as error:
        name = next((key for key in connection.config if f"'{key}'" in str(error)), None)
        message = f"{location.scheme}:// stores have no option {name!r}"
        raise ValidationError(message, field=name) from None
    except (obstore_errors.BaseError, ValueError) as error:
        # Only the first line: the following ones may contain the configuration.
        reason = str(error).partition("\n")[0]
        message = f"cannot connect to {location.url}: {reason}"
        raise ValidationError(message, field="options") from None
    except BaseException as error:
        if not is_panic(error):
            raise
        message = f"cannot connect to {location.url}: an option has an invalid value"
        raise ValidationError(message, field="options") from None


def _open_s3(bucket: str, config: Mapping[str, str], **settings: Any) -> S3Store:
    config = dict(config)
    if "endpoint" in config:
        # obstore reads the environment as well, where this variable takes precedence over
        # `endpoint`.
        config["aws_endpoint_url_s3"] = config["endpoint"]
    if "access_key_id" in config and "secret_access_key" in config:
        # As plain settings, they would be combined with a session token from the environment.
        settings["credential_provider"] = _FixedCredentials(
            access_key_id=config.pop("access_key_id"),
            secret_access_key=config.pop("secret_access_key"),
            token=config.pop("session_token", None),
            expires_at=None,
        )
    return S3Store(bucket, config=config, **settings)  # type: ignore[arg-type]


def _open_azure(container: str, config: Mapping[str, str], **settings: Any) -> AzureStore:
    return AzureStore(container, config=dict(config), **settings)  # type: ignore[arg-type]


def _open_gcs(bucket: str, config: Mapping[str, str], **settings: Any) -> GCSStore:
    return GCSStore(bucket, config=dict(config), **settings)  # type: ignore[arg-type]


_OPENERS: Mapping[str, Callable[..., ObjectStore]] = {
    "s3": _open_s3,
    "r2": _open_s3,
    "az": _open_azure,
    "abfss": _open_azure,
    "gs": _open_gcs,
}


class _FixedCredentials:
    def __init__(self, **credentials: str | None) -> None:
        self._credentials = credentials

    def __call__(self) -> dict[str, str | None]:
        return self._credentials
