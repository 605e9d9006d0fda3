"""A real Azure Blob server for tests: azurite in memory, on a free loopback port."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
import urllib.request
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING

from support.server_process import free_port, run_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parents[2] / ".cache/azurite/node_modules/azurite/dist/src/blob/main.js"
#: The account that azurite always has; its documentation publishes the key.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_CONTAINER = "lake"
_API = "2021-12-02"


@dataclass(frozen=True, kw_only=True)
class AzureServer:
    """A running server with one container."""

    endpoint: str
    #: Options with the key of the account.
    options: dict[str, str] = field(repr=False)

    def new_uri(self) -> str:
        """Return a place in the container that nobody else uses."""
        return f"az://{_CONTAINER}/{uuid.uuid4().hex}"

    def sas_options(self, *, valid_for: timedelta = timedelta(hours=1)) -> dict[str, str]:
        """Return options with a shared access signature of the container, and without the key."""
        options = {k: v for k, v in self.options.items() if k != "account_key"}
        return {**options, "sas_key": _container_sas(valid_for)}


@contextmanager
def run_azure_server() -> Iterator[AzureServer]:
    """Run a server; it and its objects end with the block, or with this process."""
    port = free_port()
    command = ["node", PROGRAM, "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    # `--loose`: headers that azurite does not know are no error, as in Azure.
    command += ["--skipApiVersionCheck", "--loose", "--disableTelemetry"]
    with run_server(command, port):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _create_container(endpoint)
        yield AzureServer(
            endpoint=endpoint,
            options={
                "account_name": ACCOUNT,
                "account_key": ACCOUNT_KEY,
                "endpoint": endpoint,
                "allow_http": "true",
            },
        )


def _create_container(endpoint: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
    lines = [f"{name}:{value}" for name, value in headers.items()]
    resource = f"/{ACCOUNT}/{ACCOUNT}/{_CONTAINER}\nrestype:container"
    signature = _sign("\n".join(["PUT", *[""] * 11, *lines, resource]))
    request = urllib.request.Request(
        f"{endpoint}/{_CONTAINER}?restype=container",
        method="PUT",
        headers={**headers, "authorization": f"SharedKey {ACCOUNT}:{signature}"},
    )
    urllib.request.urlopen(request, timeout=30).close()


def _container_sas(valid_for: timedelta) -> str:
    """Sign a token for every operation on the container, as version 2021-12-02 asks for it."""
    ends = f"{datetime.now(UTC) + valid_for:%Y-%m-%dT%H:%M:%SZ}"
    fields = ["racwdl", "", ends, f"/blob/{ACCOUNT}/{_CONTAINER}", "", "", "", _API, "c"]
    token = {"sp": "racwdl", "se": ends, "sv": _API, "sr": "c"}
    signature = _sign("\n".join([*fields, *[""] * 7]))
    return urllib.parse.urlencode({**token, "sig": signature})


def _sign(text: str) -> str:
    key = base64.b64decode(ACCOUNT_KEY)
    return base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
