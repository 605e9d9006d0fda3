"""A DynamoDB server for tests: moto's, in a process of its own, one request after the other.

moto checks a condition and writes in two steps; only without threads is that atomic, as it is in
DynamoDB.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import botocore.session

from support.server_process import free_port, run_server

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS = {"access_key_id": "any", "secret_access_key": "any"}
_REGION = "us-east-1"


@dataclass(frozen=True, kw_only=True)
class DynamoDbServer:
    """A running server."""

    endpoint: str

    @property
    def client(self) -> Any:
        keys = {f"aws_{name}": value for name, value in _KEYS.items()}
        session = botocore.session.Session()
        return session.create_client(
            "dynamodb", region_name=_REGION, endpoint_url=self.endpoint, **keys
        )

    def new_table(self) -> str:
        """Create a table of entries and return its name."""
        name = f"delta-log-{uuid.uuid4().hex}"
        keys = {"tablePath": "HASH", "fileName": "RANGE"}
        self.client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
            BillingMode="PAY_PER_REQUEST",
        )
        return name

    def options(self, table: str) -> dict[str, str]:
        return {
            "locking_provider": "dynamodb",
            "locking_table": table,
            "locking_endpoint": self.endpoint,
            **{f"locking_{name}": value for name, value in _KEYS.items()},
        }

    def entries(self, table: str) -> list[dict[str, str]]:
        """Return all entries, ordered by file name, as plain values."""
        items = self.client.scan(TableName=table, ConsistentRead=True)["Items"]
        plain = [{name: next(iter(value.values())) for name, value in i.items()} for i in items]
        return sorted(plain, key=lambda entry: (entry["tablePath"], entry["fileName"]))


@contextmanager
def run_dynamodb_server() -> Iterator[DynamoDbServer]:
    """Run a server; it and its tables end with the block, or with this process."""
    port = free_port()
    command = [sys.executable, "-m", "support.dynamodb_server", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with run_server(command, port, environment=environment):
        yield DynamoDbServer(endpoint=f"http://127.0.0.1:{port}")


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)
    make_server("127.0.0.1", int(sys.argv[1]), application, threaded=False).serve_forever()


if __name__ == "__main__":
    main()
