"""The routes of the HTTP server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.routing import Route

from lakehand.errors import LakehandError
from lakehand.service.store.listings import Listings
from lakehand.web.answer_cache import KEPT_SECONDS, AnswerCache
from lakehand.web.answers import answer_bug, answer_error, answer_http_error
from lakehand.web.event_stream import EventFeed, EventStream
from lakehand.web.job_views import JOB_ENDPOINTS
from lakehand.web.metrics import MetricsEndpoint
from lakehand.web.middleware import AccessCheck, SecurityHeaders
from lakehand.web.notification_routes import NotificationRoutes
from lakehand.web.overview_view import OVERVIEW_ENDPOINTS
from lakehand.web.resources import Resources
from lakehand.web.service_views import SERVICE_ENDPOINTS
from lakehand.web.sql_api import SqlRoutes
from lakehand.web.table_views import TABLE_ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lakehand.service.notifications import Notifications
    from lakehand.service.store.database import Database
    from lakehand.web.access import AccessRules

#: Everything that has a view: each is a resource of the API, and many are pages.
ENDPOINTS = (*OVERVIEW_ENDPOINTS, *SERVICE_ENDPOINTS, *TABLE_ENDPOINTS, *JOB_ENDPOINTS)


def create_app(
    notifications: Notifications,
    database: Database,
    rules: AccessRules,
    *,
    kept_seconds: float = KEPT_SECONDS,
) -> Starlette:
    """Return the application; `rules` say who may use it. Answers are kept for some seconds."""
    probes = NotificationRoutes(notifications, database)
    listings = Listings(database)
    answers = AnswerCache(listings.last_event_id, kept_seconds=kept_seconds)
    feed = EventFeed(database, listings)
    resources = Resources(ENDPOINTS, notifications, database, rules, answers)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        resources.close()
        await run_in_threadpool(probes.close)

    app = Starlette(
        routes=[
            Route("/healthz", probes.health),
            Route("/readyz", probes.ready),
            Route("/metrics", MetricsEndpoint(database, lambda: notifications.config).answer),
            Route("/notify", probes.notify, methods=["POST"]),
            Route("/api/v1/notify", probes.notify, methods=["POST"]),
            Route("/api/v1/events/objects", probes.object_events, methods=["POST"]),
            Route("/api/v1/events/stream", EventStream(feed).answer),
            *SqlRoutes(lambda: notifications.config, database, answers).routes(),
            *resources.routes(),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(AccessCheck, rules=rules)],
        exception_handlers={
            LakehandError: answer_error,
            404: answer_http_error,
            405: answer_http_error,
            Exception: answer_bug,
        },
        lifespan=lifespan,
    )
    app.state.feed = feed
    return app
