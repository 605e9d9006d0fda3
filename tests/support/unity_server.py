"""A stand-in for Unity Catalog: the answers that its OpenAPI document promises, on loopback."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

API = "/api/2.1/unity-catalog"
TOKEN = "a-token-that-no-message-may-show"
PAGE = 2


@dataclass
class Unity:
    """What the server knows, and what it was asked."""

    url: str = ""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Credentials by identifier of a table.
    vended: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Tables that may be read only.
    read_only: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def add(self, name: str, **members: Any) -> None:
        catalog, schema, table = name.split(".")
        self.tables[name] = {
            "catalog_name": catalog,
            "schema_name": schema,
            "name": table,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "table_id": f"id-of-{name}",
            **members,
        }

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        path, query = unquote(parts.path.removeprefix(API)), dict(parse_qsl(parts.query))
        self.requests.append(f"{method} {path}")
        if path == "/temporary-table-credentials":
            return self._vend(body)
        if path.startswith("/tables/"):
            found = self.tables.get(path.removeprefix("/tables/"))
            missing = {"error_code": "TABLE_DOES_NOT_EXIST", "message": "no such table"}
            if found is not None and found.get("hidden"):
                return 403, {"error_code": "PERMISSION_DENIED", "message": "no USE SCHEMA on it"}
            return (200, found) if found else (404, missing)
        return 200, self._page(path.removeprefix("/"), query)

    def _page(self, kind: str, query: dict[str, str]) -> dict[str, Any]:
        entries = list(self.tables.values())
        if kind == "tables":
            place = query["catalog_name"], query["schema_name"]
            found = [e for e in entries if (e["catalog_name"], e["schema_name"]) == place]
        elif kind == "schemas":
            inside = [e for e in entries if e["catalog_name"] == query["catalog_name"]]
            found = [{"name": name} for name in sorted({e["schema_name"] for e in inside})]
        else:
            found = [{"name": name} for name in sorted({e["catalog_name"] for e in entries})]
        first = int(query.get("page_token", 0))
        following = str(first + PAGE) if first + PAGE < len(found) else None
        return {kind: found[first:][:PAGE], "next_page_token": following}

    def _vend(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        table, operation = body["table_id"], body["operation"]
        if operation == "READ_WRITE" and table in self.read_only:
            return 403, {"error_code": "PERMISSION_DENIED", "message": "no MODIFY on it"}
        unconfigured = {"error_code": "FAILED_PRECONDITION", "message": "S3 bucket configuration"}
        return (200, self.vended[table]) if table in self.vended else (400, unconfigured)


@contextmanager
def run_unity() -> Iterator[Unity]:
    """Serve a catalog on a free loopback port."""
    state = Unity()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, document = 401, {"error_code": "UNAUTHENTICATED", "message": "who are you"}
            else:
                status, document = state.answer(self.command, self.path, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815  names of the base class

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
