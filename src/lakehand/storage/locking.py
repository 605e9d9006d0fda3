"""Databases that commits are put by: the options `locking_*`.

DynamoDB has the table and the format of delta-spark's multi-cluster log store, PostgreSQL a table
of lakehand's own.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.storage.commit_entries import CommitEntries, Entry, GuardedBackend
from lakehand.storage.connection_options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.storage.aws_credentials import RenewedCredentials
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
        raise errors.ValidationError(
            f"{provider!r} is not a locking provider",
            field="locking_provider",
            value=provider,
            hint=f"use {' or '.join(PROVIDERS)}",
        )
    return GuardedBackend(backend, _ENTRIES[provider](options, connection), location)


def _dynamodb(options: dict[str, str], connection: Connection) -> CommitEntries:
    _check_names(options, _DYNAMODB)
    has_own_keys = "access_key_id" in options
    of_store = {} if has_own_keys else {k: v for k, v in connection.config.items() if k in _KEYS}
    region = connection.config.get("region")
    merged = {**of_store, **({"region": region} if region else {}), **options}
    return DynamoDbEntries(Options(merged), None if has_own_keys else connection.credentials)


def _postgresql(options: dict[str, str], _connection: Connection) -> CommitEntries:
    _check_names(options, frozenset({"url"}))
    if "url" not in options:
        message = "the locking provider postgresql needs the option locking_url"
        hint = "set it to postgresql://user@host/database"
        raise errors.ValidationError(message, field="locking_url", hint=hint)
    return PostgresqlEntries(options["url"])


def _check_names(options: dict[str, str], known: frozenset[str]) -> None:
    for name in options.keys() - known:
        known_names = ", ".join(f"locking_{name}" for name in sorted(known))
        raise errors.ValidationError(
            f"the locking provider has no option locking_{name}",
            field=f"locking_{name}",
            hint=f"it has {known_names}",
        )


# DynamoDB

#: For how long a complete entry stays before DynamoDB may delete it, if the table is told to.
_KEPT_SECONDS = 24 * 60 * 60
_REGION = "us-east-1"
_LATER = frozenset({
    "InternalServerError", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
    "ServiceUnavailable", "ThrottlingException", "TransactionConflictException",
})  # fmt: skip


class DynamoDbEntries:
    """A table with the keys `tablePath` and `fileName`."""

    def __init__(self, options: Options, credentials: RenewedCredentials | None) -> None:
        self._options = options
        self._credentials = credentials
        self._name = options.get("table", "delta_log")

    def __repr__(self) -> str:
        return f"DynamoDbEntries({self._name!r})"

    def insert(self, entry: Entry) -> bool:
        return self._put(entry, ConditionExpression="attribute_not_exists(fileName)")

    def replace(self, old: Entry, new: Entry) -> bool:
        return self._put(
            new,
            ConditionExpression="tempPath = :old",
            ExpressionAttributeValues={":old": {"S": old.temporary}},
        )

    def _put(self, entry: Entry, **condition: Any) -> bool:
        item = {**_key_of(entry), "tempPath": {"S": entry.temporary}, "complete": {"S": "false"}}
        with self._requests() as client:
            try:
                client.put_item(TableName=self._name, Item=item, **condition)
            except client.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def find(self, table: str, name: str) -> Entry | None:
        key = _key_of(Entry(table=table, name=name, temporary=""))
        with self._requests() as client:
            found = client.get_item(TableName=self._name, Key=key, ConsistentRead=True)
        return _entry_of(found["Item"]) if "Item" in found else None

    def latest(self, table: str) -> Entry | None:
        with self._requests() as client:
            found = client.query(
                TableName=self._name,
                ConsistentRead=True,
                ScanIndexForward=False,
                Limit=1,
                KeyConditionExpression="tablePath = :table",
                ExpressionAttributeValues={":table": {"S": table}},
            )
        return _entry_of(found["Items"][0]) if found["Items"] else None

    def complete(self, entry: Entry) -> None:
        with self._requests() as client:
            try:
                client.update_item(
                    TableName=self._name,
                    Key=_key_of(entry),
                    UpdateExpression="SET complete = :true, expireTime = :time",
                    ConditionExpression="complete = :false AND tempPath = :temporary",
                    ExpressionAttributeValues={
                        ":true": {"S": "true"},
                        ":false": {"S": "false"},
                        ":temporary": {"S": entry.temporary},
                        ":time": {"N": str(int(time.time()) + _KEPT_SECONDS)},
                    },
                )
            except client.exceptions.ConditionalCheckFailedException:
                return  # another writer was faster

    @contextmanager
    def _requests(self) -> Iterator[Any]:
        """Give a client, and raise its errors as lakehand's."""
        from botocore import exceptions

        client = _client(
            self._options.get("endpoint"), self._options.get("region", _REGION), **self._keys()
        )
        try:
            yield client
        except exceptions.ClientError as error:
            raise self._translated(error.response.get("Error", {})) from None
        except exceptions.NoCredentialsError:
            raise self._denied("no credentials were found") from None
        except exceptions.BotoCoreError as error:
            raise errors.StoreUnreachableError(
                f"the DynamoDB table {self._name} does not answer: {type(error).__name__}",
                operation="commit",
                hint="check the endpoint, the region and the network, or retry later",
            ) from None

    def _keys(self) -> dict[str, str | None]:
        if self._credentials is not None:
            keys = self._credentials.current()
            return {
                "aws_access_key_id": keys.access_key_id,
                "aws_secret_access_key": keys.secret_access_key,
                "aws_session_token": keys.session_token,
            }
        names = ("access_key_id", "secret_access_key", "session_token")
        return {f"aws_{name}": self._options[name] for name in names if name in self._options}

    def _translated(self, failure: Mapping[str, str]) -> errors.StorageError:
        code = failure.get("Code", "unknown error")
        if code in _LATER:
            message = f"the DynamoDB table {self._name} refused a request for now: {code}"
            return errors.StoreUnreachableError(message, operation="commit", store_code=code)
        if code == "ResourceNotFoundException":
            return errors.StorageError(
                f"there is no DynamoDB table {self._name}",
                operation="commit",
                store_code=code,
                hint="create it with the string keys tablePath (hash) and fileName (range), or name"
                " it with locking_table; check locking_region",
            )
        return self._denied(code)

    def _denied(self, code: str) -> errors.AccessDeniedError:
        return errors.AccessDeniedError(
            f"the DynamoDB table {self._name} refused a request: {code}",
            operation="commit",
            store_code=code,
            hint="the credentials need GetItem, Query, PutItem and UpdateItem on the table",
        )


@lru_cache(maxsize=16)
def _client(endpoint: str | None, region: str, **keys: str | None) -> Any:
    try:
        import botocore.session
        from botocore.config import Config
    except ImportError as error:
        message = "commits through DynamoDB need botocore, which is not installed"
        raise errors.NotInstalledError(message, hint='pip install "lakehand[aws]"') from error
    # No request is repeated by itself: a repeated insert would be refused by its own entry.
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
    return botocore.session.Session().create_client(
        "dynamodb", region_name=region, endpoint_url=endpoint, config=config, **keys
    )


def _key_of(entry: Entry) -> dict[str, dict[str, str]]:
    return {"tablePath": {"S": entry.table}, "fileName": {"S": entry.name}}


def _entry_of(item: Mapping[str, Mapping[str, str]]) -> Entry:
    return Entry(
        table=item["tablePath"]["S"],
        name=item["fileName"]["S"],
        temporary=item["tempPath"]["S"],
        is_complete=item["complete"]["S"] == "true",
    )


# PostgreSQL

_CREATE = """
CREATE TABLE IF NOT EXISTS lakehand_commit_entries (
    table_path text NOT NULL, file_name text COLLATE "C" NOT NULL,
    temporary text NOT NULL, is_complete boolean NOT NULL DEFAULT false,
    PRIMARY KEY (table_path, file_name)
)"""
#: Codes of PostgreSQL: a name comes into its catalog twice, or there is such a type or table.
_CREATED_MEANWHILE = frozenset({"23505", "42710", "42P07"})
_COLUMNS = "table_path, file_name, temporary, is_complete"
_INSERT = """
INSERT INTO lakehand_commit_entries (table_path, file_name, temporary) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING"""
_REPLACE = """
UPDATE lakehand_commit_entries SET temporary = %s, is_complete = false
WHERE table_path = %s AND file_name = %s AND temporary = %s"""
_FIND = f"""
SELECT {_COLUMNS} FROM lakehand_commit_entries WHERE table_path = %s AND file_name = %s"""
_LATEST = f"""
SELECT {_COLUMNS} FROM lakehand_commit_entries WHERE table_path = %s
ORDER BY file_name DESC LIMIT 1"""
_COMPLETE = """
UPDATE lakehand_commit_entries SET is_complete = true
WHERE table_path = %s AND file_name = %s AND temporary = %s"""


class PostgresqlEntries:
    """The table `lakehand_commit_entries` of a database; it is created at the first use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_created = False

    def __repr__(self) -> str:
        return "PostgresqlEntries()"  # the URL may contain a password

    def insert(self, entry: Entry) -> bool:
        return self._run(_INSERT, entry.table, entry.name, entry.temporary)[0] == 1

    def replace(self, old: Entry, new: Entry) -> bool:
        return self._run(_REPLACE, new.temporary, old.table, old.name, old.temporary)[0] == 1

    def find(self, table: str, name: str) -> Entry | None:
        return self._read(_FIND, table, name)

    def latest(self, table: str) -> Entry | None:
        return self._read(_LATEST, table)

    def complete(self, entry: Entry) -> None:
        self._run(_COMPLETE, entry.table, entry.name, entry.temporary)

    def _read(self, statement: str, *values: str) -> Entry | None:
        _, row = self._run(statement, *values)
        if row is None:
            return None
        return Entry(table=row[0], name=row[1], temporary=row[2], is_complete=row[3])

    def _run(self, statement: str, *values: str) -> tuple[int, Any]:
        """Return how many rows a statement changed or found, and the first one that it found."""
        with self._connection() as connection:
            if not self._is_created:
                _create(connection)
                self._is_created = True
            cursor = connection.execute(statement, values)
            return cursor.rowcount, cursor.fetchone() if cursor.description else None

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError as error:
            message = "commits through PostgreSQL need psycopg, which is not installed"
            hint = 'pip install "lakehand[postgresql]"'
            raise errors.NotInstalledError(message, hint=hint) from error
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                yield connection
        except psycopg.OperationalError:
            # Its message may contain the URL.
            raise errors.StoreUnreachableError(
                "the PostgreSQL database with the entries of commits does not answer",
                operation="commit",
                hint="check locking_url and the network, or retry later",
            ) from None
        except psycopg.Error as error:
            raise errors.AccessDeniedError(
                f"the PostgreSQL database refused a request: {error.sqlstate}",
                operation="commit",
                hint="the role needs to create and change the table lakehand_commit_entries",
            ) from None


def _create(connection: Any) -> None:
    """Create the table, also while other sessions do: all but the first of them fail once."""
    for is_last in (False, False, True):
        try:
            connection.execute(_CREATE)
        except Exception as error:
            if is_last or getattr(error, "sqlstate", None) not in _CREATED_MEANWHILE:
                raise
        else:
            return


_ENTRIES = {"dynamodb": _dynamodb, "postgresql": _postgresql}
