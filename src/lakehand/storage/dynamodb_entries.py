"""Entries of commits in DynamoDB, in the table and the format of delta-spark's log store."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakehand import errors
from lakehand.storage.commit_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.storage.aws_credentials import RenewedCredentials
    from lakehand.storage.connection_options import Options

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
