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
from lakehand.web.endpoints import Call, to_json
from lakehand.web.middleware import IDENTITY
from lakehand.web.openapi import openapi_document
from lakehand.web.pages import login_page, page, static_files
from lakehand.web.requests import read_form, read_json_or_nothing
from lakehand.web.table_content import TableReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from lakehand.service.notifications import Notifications
    from lakehand.service.store.database import Database
    from lakehand.web.access import AccessRules
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
    ) -> None:
        self._endpoints = endpoints
        #: Has the configuration that holds now.
        self._notifications = notifications
        self._database = database
        self._rules = rules
        self._reader = TableReader()
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
            body = {}
            if endpoint.method not in SAFE_METHODS:
                body = await read_json_or_nothing(request)
            result = await self._view(endpoint, request, body)
            text = await run_in_threadpool(_written, result)
            return Response(text, endpoint.status, media_type="application/json")

        return answer

    def _page(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            result = await self._view(endpoint, request, {})
            return await run_in_threadpool(
                page, request, str(endpoint.template), result, now=self._database.time
            )

        return answer

    def _form(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            result = await self._view(endpoint, request, await read_form(request))
            parts = {**request.path_params, **_ids(result)}
            following = str(endpoint.after_form)
            for name, value in parts.items():
                following = following.replace(f"{{{name}}}", quote(str(value), safe=""))
            return RedirectResponse(following, 303)

        return answer

    async def _view(self, endpoint: Endpoint, request: Request, body: Mapping[str, Any]) -> Any:
        identity: Identity = request.scope[IDENTITY]
        if not identity.may(endpoint.role):
            message = f"{identity.name} has the role {identity.role}; this needs {endpoint.role}"
            raise RequestRefusedError(message)
        config = self._notifications.config
        client = ServiceClient(config, by=identity.name, database=self._database)
        call = Call(
            client=client,
            identity=identity,
            reader=self._reader,
            path=request.path_params,
            query=dict(request.query_params),
            body=body,
        )
        if any("\0" in value for value in request.path_params.values()):
            raise ValidationError("the path has a null character")
        return await run_in_threadpool(endpoint.view, call)

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


def _written(result: Any) -> str:
    """Return a record as JSON; values that JSON does not have, as the commands print them."""
    return json.dumps(to_json(result), default=str)


def _ids(result: Any) -> dict[str, Any]:
    """Return the number of what a view has returned, for the page that is shown next."""
    inner: Any = getattr(result, "job", None) or getattr(result, "table", None)
    return {} if inner is None else {"id": inner.id}
