"""Chooses the database that commits are put by: the options `locking_*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ValidationError
from lakehand.storage.commit_entries import CommitEntries, GuardedBackend
from lakehand.storage.connection_options import Options

if TYPE_CHECKING:
    from lakehand.storage.connection_options import Connection
    from lakehand.storage.location import Location
    from lakehand.storage.objects import Backend

PROVIDERS = ("dynamodb", "postgresql")
_KEYS = ("access_key_id", "secret_access_key", "session_token")
_DYNAMODB = frozenset({"table", "endpoint", "region", *_KEYS})


def guard(backend: Backend, location: Location, connection: Connection) -> Backend:
    """Return a backend whose versions are put by the database that the options name.

    Without `locking_provider`, the other options have no meaning, and neither has the database.
    """
    options = dict(connection.locking)
    provider = options.pop("provider", None)
    if provider is None:
        return backend
    if provider not in PROVIDERS:
        raise ValidationError(
            f"{provider!r} is not a locking provider",
            field="locking_provider",
            value=provider,
            hint=f"use {' or '.join(PROVIDERS)}",
        )
    return GuardedBackend(backend, _ENTRIES[provider](options, connection), location)


def _dynamodb(options: dict[str, str], connection: Connection) -> CommitEntries:
    from lakehand.storage.dynamodb_entries import DynamoDbEntries

    _check_names(options, _DYNAMODB)
    has_own_keys = "access_key_id" in options
    of_store = {} if has_own_keys else {k: v for k, v in connection.config.items() if k in _KEYS}
    region = connection.config.get("region")
    merged = {**of_store, **({"region": region} if region else {}), **options}
    return DynamoDbEntries(Options(merged), None if has_own_keys else connection.credentials)


def _postgresql(options: dict[str, str], _connection: Connection) -> CommitEntries:
    from lakehand.storage.postgresql_entries import PostgresqlEntries

    _check_names(options, frozenset({"url"}))
    if "url" not in options:
        message = "the locking provider postgresql needs the option locking_url"
        hint = "set it to postgresql://user@host/database"
        raise ValidationError(message, field="locking_url", hint=hint)
    return PostgresqlEntries(options["url"])


def _check_names(options: dict[str, str], known: frozenset[str]) -> None:
    for name in options.keys() - known:
        known_names = ", ".join(f"locking_{name}" for name in sorted(known))
        raise ValidationError(
            f"the locking provider has no option locking_{name}",
            field=f"locking_{name}",
            hint=f"it has {known_names}",
        )


_ENTRIES = {"dynamodb": _dynamodb, "postgresql": _postgresql}
