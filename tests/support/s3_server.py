"""A real S3 server for tests: versitygw over a temporary directory, on a free loopback port."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.server_process import free_port, run_server

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    options: dict[str, str] = field(repr=False)

    def new_uri(self) -> str:
        """Return a place in the bucket that nobody else uses."""
        return f"s3://{self.bucket}/{uuid.uuid4().hex}"


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
    command = [binary, "--port", f"127.0.0.1:{port}", "--quiet", *events, "posix", directory]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with run_server(command, port, environment={**os.environ, **keys}) as process:
        yield S3Server(
            endpoint=f"http://127.0.0.1:{port}",
            bucket=bucket,
            directory=directory / bucket,
            pid=process.pid,
            options={
                "endpoint": f"http://127.0.0.1:{port}",
                "region": "us-east-1",
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
                "allow_http": "true",
            },
        )
