"""Handlers of the endpoints: JSON below /api/v1, pages at their own paths, forms of pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from lakehand.errors import RequestRefusedError, ValidationError
from lakehand.service.client import ServiceClient
from lakehand.web.access import COOKIE, SAFE_METHODS, SECURE_COOKIE, Identity, is_loopback
from lakehand.web.endpoints import Call, SlowValues, to_json
from lakehand.web.middleware import IDENTITY
from lakehand.web.openapi import openapi_document
from lakehand.web.pages import login_page, page_of, render_page, shown_name, static_files
from lakehand.web.requests import read_form, read_json_or_nothing
from lakehand.web.table_content import TableReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from lakehand.service.notifications import Notifications
    from lakehand.service.store.database import Database
    from lakehand.web.access import AccessRules
    from lakehand.web.answer_cache import AnswerCache
    from lakehand.web.endpoints import Endpoint

    Handler = Callable[[Request], Awaitable[Response]]

API = "/api/v1"
#: How long a browser keeps the cookie of a token.
_COOKIE_SECONDS = 7 * 86_400


class Resources:
    """Makes routes of endpoints."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        notifications: Notifications,
        database: Database,
        rules: AccessRules,
        answers: AnswerCache,
    ) -> None:
        self._endpoints = endpoints
        #: Has the configuration that holds now.
        self._notifications = notifications
        self._database = database
        self._rules = rules
        self._answers = answers
        self._reader = TableReader()
        self._slow_values = SlowValues()
        self._openapi = openapi_document(endpoints)

    def close(self) -> None:
        self._reader.close()

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the API, of pages, and of what pages need."""
        found: list[BaseRoute] = [Route("/openapi.json", self._show_openapi)]
        for endpoint in self._endpoints:
            path = f"{API}{endpoint.path}"
            found.append(Route(path, self._api(endpoint), methods=[endpoint.method]))
            at = endpoint.page or endpoint.path
            if endpoint.template is not None:
                found.append(Route(at, self._page(endpoint), methods=["GET"]))
            if endpoint.after_form is not None:
                found.append(Route(at, self._form(endpoint), methods=["POST"]))
        return [
            *found,
            Route("/login", self._show_login, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Mount("/static", static_files()),
        ]

    async def _show_openapi(self, _request: Request) -> Response:
        return JSONResponse(self._openapi)

    def _api(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            if endpoint.method in SAFE_METHODS:
                text = await self._kept(endpoint, request, "api", self._write)
            else:
                body = await read_json_or_nothing(request)
                text = _written(await self._change(endpoint, request, body))
            return Response(text, endpoint.status, media_type="application/json")

        return answer

    def _page(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            text = await self._kept(endpoint, request, "page", self._render)
            return page_of(text, request.scope[IDENTITY])

        return answer

    def _form(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            result = await self._change(endpoint, request, await read_form(request))
            parts = {**request.path_params, **_ids(result)}
            following = str(endpoint.after_form)
            for name, value in parts.items():
                following = following.replace(f"{{{name}}}", quote(str(value), safe=""))
            return RedirectResponse(following, 303)

        return answer

    async def _kept(
        self,
        endpoint: Endpoint,
        request: Request,
        kind: str,
        make: Callable[[Endpoint, Request, Call], bytes],
    ) -> bytes:
        """Return what was answered to others just now, or make it."""
        call = self._call(endpoint, request, {}, is_page=kind == "page")
        who = (call.identity.role, shown_name(call.identity) is None)
        key = (kind, request.scope["path"], request.scope["query_string"], who)
        return await self._answers.get(
            key,
            lambda: run_in_threadpool(make, endpoint, request, call),
            is_reload=kind == "page" and request.headers.get("hx-request") == "true",
        )

    def _write(self, endpoint: Endpoint, _request: Request, call: Call) -> bytes:
        with self._database.one_state():
            record = endpoint.view(call)
        return _written(record)

    def _render(self, endpoint: Endpoint, request: Request, call: Call) -> bytes:
        with self._database.one_state():
            record, now = endpoint.view(call), self._database.time()
        return render_page(request, str(endpoint.template), record, now=now)

    async def _change(self, endpoint: Endpoint, request: Request, body: Mapping[str, Any]) -> Any:
        call = self._call(endpoint, request, body)
        try:
            return await run_in_threadpool(endpoint.view, call)
        finally:
            self._answers.note_change()

    def _call(
        self,
        endpoint: Endpoint,
        request: Request,
        body: Mapping[str, Any],
        *,
        is_page: bool = False,
    ) -> Call:
        """Return the request for a view; RequestRefusedError if the role does not allow it."""
        identity: Identity = request.scope[IDENTITY]
        if not identity.may(endpoint.role):
            message = f"{identity.name} has the role {identity.role}; this needs {endpoint.role}"
            raise RequestRefusedError(message)
        if any("\0" in value for value in request.path_params.values()):
            raise ValidationError("the path has a null character")
        config = self._notifications.config
        return Call(
            client=ServiceClient(config, by=identity.name, database=self._database),
            identity=identity,
            reader=self._reader,
            path=request.path_params,
            query=dict(request.query_params),
            body=body,
            slow_values=self._slow_values,
            is_page=is_page,
        )

    # -- the cookie of a token --------------------------------------------------------------------

    async def _show_login(self, request: Request) -> Response:
        return login_page(request, error=None)

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request)
        token, following = form.get("token", "").strip(), form.get("next", "/")
        address = request.client.host if request.client else ""
        identity = await run_in_threadpool(self._rules.identity_of, token, address)
        if identity is None:
            return login_page(request, error="This token is not valid.", status=401)
        # Only pages of this server: //host would be another one.
        is_here = following.startswith("/") and not following.startswith(("//", "/\\"))
        answer = RedirectResponse(following if is_here else "/", 303)
        is_secure = self._is_secure(request, address)
        answer.set_cookie(
            SECURE_COOKIE if is_secure else COOKIE,
            token,
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=is_secure,
        )
        return answer

    def _is_secure(self, request: Request, address: str) -> bool:
        """Whether the browser talks to this server over TLS, or is on this machine."""
        if self._rules.is_proxy(address):
            return request.headers.get("x-forwarded-proto", "") == "https"
        return is_loopback(request.url.hostname or "") or request.url.scheme == "https"

    async def _log_out(self, _request: Request) -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        answer.delete_cookie(SECURE_COOKIE, httponly=True, samesite="strict", secure=True)
        return answer


def _written(result: Any) -> bytes:
    """Return a record as JSON; values that JSON does not have, as the commands print them."""
    return json.dumps(to_json(result), default=str).encode()


def _ids(result: Any) -> dict[str, Any]:
    """Return the number of what a view has returned, for the page that is shown next."""
    inner: Any = getattr(result, "job", None) or getattr(result, "table", None)
    return {} if inner is None else {"id": inner.id}
