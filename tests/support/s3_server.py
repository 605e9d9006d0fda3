"""A real S3 server for tests: versitygw over a temporary directory, on a free loopback port."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.server_process import free_port, run_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BINARY = Path(__file__).parents[2] / ".cache" / "bin" / "versitygw"
ACCESS_KEY = "lakehand-tests"
SECRET_KEY = "a-secret-that-no-message-may-show"


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    bucket: str
    #: The bucket's files, as the server keeps them.
    directory: Path
    pid: int
    binary: Path
    options: dict[str, str] = field(repr=False)

    def new_uri(self) -> str:
        """Return a place in the bucket that nobody else uses."""
        return f"s3://{self.bucket}/{uuid.uuid4().hex}"

    def grant(self, statements: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Let a new user do what `statements` allow, and no other user anything.

        Returns the options of that user. The bucket's owner is not restricted.
        """
        user = uuid.uuid4().hex
        administrator = ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        created = ["create-user", "--access", user, "--secret", SECRET_KEY, "--role", "user"]
        place = ["--endpoint-url", self.endpoint]
        subprocess.run([self.binary, "admin", *administrator, *place, *created], check=True)
        document = {
            "Version": "2012-10-17",
            "Statement": [{**statement, "Principal": user} for statement in statements],
        }
        self._client().put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(document))
        return {**self.options, "access_key_id": user}

    def _client(self) -> Any:
        import botocore.session

        return botocore.session.Session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.options["region"],
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )


@contextmanager
def run_s3_server(
    directory: Path,
    *,
    binary: Path = BINARY,
    event_url: str | None = None,
    port: int | None = None,
) -> Iterator[S3Server]:
    """Run a server whose data lie in `directory`; it ends with the block, or with this process.

    It posts event documents to `event_url`.
    """
    bucket = "lake"
    (directory / bucket).mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    events = [] if event_url is None else ["--event-webhook-url", event_url]
    users = directory.with_name(f"{directory.name}-users")
    users.mkdir(exist_ok=True)
    options = ["--port", f"127.0.0.1:{port}", "--quiet", "--iam-dir", users, *events]
    command = [binary, *options, "posix", directory]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with run_server(command, port, environment={**os.environ, **keys}) as process:
        yield S3Server(
            endpoint=f"http://127.0.0.1:{port}",
            bucket=bucket,
            directory=directory / bucket,
            pid=process.pid,
            binary=binary,
            options={
                "endpoint": f"http://127.0.0.1:{port}",
                "region": "us-east-1",
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
                "allow_http": "true",
            },
        )
