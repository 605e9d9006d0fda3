"""A server that hands out keys as AWS does: STS, and the portal of SSO."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_STS = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret of {key}</SecretAccessKey>
<SessionToken>token of {key}</SessionToken><Expiration>{until}</Expiration></Credentials>
</{action}Result></{action}Response>"""


@dataclass(kw_only=True)
class AwsIdentity:
    """Every key is named after what was asked for, so that keys of different roles differ."""

    endpoint: str
    #: What was asked for: actions of STS, and paths.
    asked: list[str] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    identity: AwsIdentity


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """Answer STS."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        asked = {name: values[0] for name, values in parse_qs(body).items()}
        self.server.identity.asked.append(asked["Action"])
        token = asked.get("WebIdentityToken", "")
        key = f"{asked['RoleArn']} {asked.get('ExternalId', '')}{token}".strip()
        until = _expiry().strftime("%Y-%m-%dT%H:%M:%SZ")
        self._answer(_STS.format(action=asked["Action"], key=key, until=until), "text/xml")

    def do_GET(self) -> None:
        """Answer the portal of SSO."""
        place = urlsplit(self.path)
        self.server.identity.asked.append(place.path)
        asked = parse_qs(place.query)
        login = self.headers["x-amz-sso_bearer_token"]
        key = f"{asked['account_id'][0]}/{asked['role_name'][0]} by {login}"
        keys = {
            "accessKeyId": key,
            "secretAccessKey": f"secret of {key}",
            "sessionToken": f"token of {key}",
            "expiration": int(_expiry().timestamp() * 1000),
        }
        self._answer(json.dumps({"roleCredentials": keys}), "application/json")

    def _answer(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def _expiry() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


@contextmanager
def run_aws_identity() -> Iterator[AwsIdentity]:
    """Run the server until the end of the block."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.identity = AwsIdentity(endpoint=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.identity
        server.shutdown()
