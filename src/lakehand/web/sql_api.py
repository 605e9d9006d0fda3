"""`POST /api/v1/sql`: statements over HTTP, on the tables of the service only.

The body is `{"statement", "parameters", "format", "wait_seconds"}`. The answer is the document of
`lakehand sql --json`, or CSV or an Arrow stream; 202 if the job of the statement has not ended yet.
A viewer may run what changes nothing: SELECT, SHOW, DESCRIBE and EXPLAIN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakehand.errors import RequestRefusedError, ValidationError
from lakehand.web.middleware import IDENTITY, SQL_PATH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from lakehand.service.config import ServiceConfig
    from lakehand.sql.results import SqlResult
    from lakehand.sql.statements import Statement
    from lakehand.web.access import Identity

_FORMATS = ("json", "csv", "arrow")
_KEYS = ("statement", "parameters", "format", "wait_seconds")
_WAIT_SECONDS, _MAX_WAIT_SECONDS = 30.0, 600.0
_ACCEPTED = 202
#: Statements that run at a time: the others wait for their turn.
_AT_A_TIME = 8


def sql_route(
    config: Callable[[], ServiceConfig], read_json: Callable[[Request], Awaitable[Any]]
) -> Route:
    """Return the route; `config` is asked for each statement, because it may be read again."""
    return Route(SQL_PATH, _SqlApi(config, read_json).run, methods=["POST"])


class _SqlApi:
    def __init__(
        self,
        config: Callable[[], ServiceConfig],
        read_json: Callable[[Request], Awaitable[Any]],
    ) -> None:
        self._config = config
        self._read_json = read_json
        self._limiter: CapacityLimiter | None = None

    async def run(self, request: Request) -> Response:
        """Run the statement of a request."""
        body = _checked(await self._read_json(request))
        body["identity"] = request.scope[IDENTITY]
        if self._limiter is None:  # It belongs to the event loop.
            self._limiter = CapacityLimiter(_AT_A_TIME)
        # Apart from the threads that answer other requests: a statement may wait for its job. When
        # the server ends, it does not wait for them; the jobs go on.
        return await to_thread.run_sync(
            self._answer, body, limiter=self._limiter, abandon_on_cancel=True
        )

    def _answer(self, body: dict[str, Any]) -> Response:
        return _response(self._run(body), body["format"])

    def _run(self, body: dict[str, Any]) -> SqlResult:
        from lakehand.service.client import ServiceClient
        from lakehand.sql.grammar import parse_statement
        from lakehand.sql.sql_session import SqlSession

        identity = body["identity"]
        statement = parse_statement(body["statement"], body["parameters"])
        _check_allowed(identity, statement)
        with ServiceClient(self._config(), by=identity.name) as client:
            session = SqlSession(
                client=client, is_restricted=True, wait_seconds=body["wait_seconds"]
            )
            return session.execute(statement)


def _check_allowed(identity: Identity, statement: Statement) -> None:
    from lakehand.sql.statements import READ_ONLY

    if not (isinstance(statement, READ_ONLY) or identity.may("operator")):
        message = f"{identity.name} is a viewer, and may change nothing"
        hint = "use a token with the role operator; SELECT, SHOW, DESCRIBE and EXPLAIN need none"
        raise RequestRefusedError(message, hint=hint)


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
