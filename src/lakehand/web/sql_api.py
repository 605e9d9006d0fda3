"""SQL over HTTP, on the tables of the service only: `POST /api/v1/sql`, and the page `/sql`.

The body is `{"statement", "parameters", "format", "wait_seconds"}`. The answer is the document of
`lakehand sql --json`, or CSV or an Arrow stream; 202 if the job of the statement has not ended yet.
A viewer may run what changes nothing: SELECT, SHOW, DESCRIBE and EXPLAIN.

The page runs a statement of its address, which may only read, for everyone; and one of its form,
which is a POST and so not for viewers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakehand.errors import LakehandError, RequestRefusedError, ValidationError
from lakehand.web.answers import status_of
from lakehand.web.middleware import IDENTITY, SQL_PATH
from lakehand.web.pages import sql_page
from lakehand.web.requests import read_form, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from lakehand.service.config import ServiceConfig
    from lakehand.service.store.database import Database
    from lakehand.sql.results import SqlResult
    from lakehand.web.answer_cache import AnswerCache

_FORMATS = ("json", "csv", "arrow")
_KEYS = ("statement", "parameters", "format", "wait_seconds")
_WAIT_SECONDS, _MAX_WAIT_SECONDS = 30.0, 600.0
#: How long the page waits for a job: it links to it after that.
_PAGE_WAIT_SECONDS = 5.0
_ACCEPTED = 202
#: Statements that run at a time: the others wait for their turn.
_AT_A_TIME = 8


class SqlRoutes:
    """The routes of statements."""

    def __init__(
        self, config: Callable[[], ServiceConfig], database: Database, answers: AnswerCache
    ) -> None:
        """`config` is asked for each statement, because it may be read again."""
        self._config = config
        self._database = database
        self._answers = answers
        self._limiter: CapacityLimiter | None = None

    def routes(self) -> list[Route]:
        return [
            Route(SQL_PATH, self._run_body, methods=["POST"]),
            Route("/sql", self._show, methods=["GET"]),
            Route("/sql", self._run_form, methods=["POST"]),
        ]

    async def _run_body(self, request: Request) -> Response:
        body = _checked(await read_json(request))
        is_viewer = not request.scope[IDENTITY].may("operator")
        result = await self._run(request, body, is_read_only=is_viewer)
        return _response(result, body["format"])

    async def _show(self, request: Request) -> Response:
        statement = request.query_params.get("statement", "").strip()
        if not statement:
            return sql_page(request)
        if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
            raise RequestRefusedError("a page of another site cannot run a statement")
        return await self._run_for_page(request, statement, is_read_only=True)

    async def _run_form(self, request: Request) -> Response:
        statement = (await read_form(request)).get("statement", "").strip()
        return await self._run_for_page(request, statement, is_read_only=False)

    async def _run_for_page(
        self, request: Request, statement: str, *, is_read_only: bool
    ) -> Response:
        wanted = {"statement": statement, "wait_seconds": _PAGE_WAIT_SECONDS}
        try:
            result = await self._run(request, _checked(wanted), is_read_only=is_read_only)
        except LakehandError as error:
            known = error.to_json()
            return sql_page(request, statement, error=known, status=status_of(error))
        return sql_page(request, statement, result=result)

    async def _run(
        self, request: Request, body: Mapping[str, Any], *, is_read_only: bool
    ) -> SqlResult:
        if self._limiter is None:  # It belongs to the event loop.
            self._limiter = CapacityLimiter(_AT_A_TIME)
        by = request.scope[IDENTITY].name

        def run() -> SqlResult:
            from lakehand.service.client import ServiceClient
            from lakehand.sql.sql_session import SqlSession

            session = SqlSession(
                client=ServiceClient(self._config(), by=by, database=self._database),
                is_restricted=True,
                is_read_only=is_read_only,
                wait_seconds=body["wait_seconds"],
            )
            return session.run(body["statement"], body["parameters"])

        # Apart from the threads that answer other requests: a statement may wait for its job. When
        # the server ends, it does not wait for them; the jobs go on.
        try:
            return await to_thread.run_sync(run, limiter=self._limiter, abandon_on_cancel=True)
        finally:
            self._answers.note_change()


def _checked(body: Any) -> dict[str, Any]:
    """Return the members of a body, all of them; ValidationError if one is wrong."""
    if not isinstance(body, dict) or not isinstance(body.get("statement"), str):
        raise ValidationError('the body is {"statement": "..."}', field="statement")
    unknown = [name for name in body if name not in _KEYS]
    if unknown:
        message = f"the body has no member {unknown[0]!r}; it has {', '.join(_KEYS)}"
        raise ValidationError(message, field=unknown[0])
    parameters = body.get("parameters")
    if parameters is not None and not isinstance(parameters, list | dict):
        raise ValidationError("parameters are a list or an object", field="parameters")
    form = body.get("format", "json")
    if form not in _FORMATS:
        raise ValidationError(f"format is one of {', '.join(_FORMATS)}", field="format")
    wait = body.get("wait_seconds", _WAIT_SECONDS)
    if isinstance(wait, bool) or not isinstance(wait, int | float):
        raise ValidationError("wait_seconds is a number", field="wait_seconds")
    if not 0 <= wait <= _MAX_WAIT_SECONDS:
        message = f"wait_seconds is between 0 and {_MAX_WAIT_SECONDS:g}"
        raise ValidationError(message, field="wait_seconds")
    return {
        "statement": body["statement"],
        "parameters": parameters,
        "format": form,
        "wait_seconds": float(wait),
    }


def _response(result: SqlResult, form: str) -> Response:
    status = 200
    if result.job is not None and result.report is None:
        status = _ACCEPTED
    if form == "csv":
        return Response(result.to_csv(), status, media_type="text/csv")
    if form == "arrow":
        kind = "application/vnd.apache.arrow.stream"
        return Response(result.to_ipc(), status, media_type=kind)
    return JSONResponse(result.to_json(), status)
