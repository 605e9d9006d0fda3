"""The parts of a job store that a client of the service uses, opened together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import JobStoreError, NotInstalledError

if TYPE_CHECKING:
    from lakehand.service.config import ServiceConfig
    from lakehand.service.store.budgets import BudgetStore
    from lakehand.service.store.database import Database
    from lakehand.service.store.events import EventLog
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.listings import Listings
    from lakehand.service.store.service_state import ServiceState
    from lakehand.service.store.table_registry import TableRegistry
    from lakehand.service.store.token_registry import TokenRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry


@dataclass(frozen=True, slots=True)
class ClientStores:
    """The parts of a job store that a client uses."""

    database: Database
    tables: TableRegistry
    jobs: JobQueue
    workers: WorkerRegistry
    budgets: BudgetStore
    service: ServiceState
    events: EventLog
    tokens: TokenRegistry
    listings: Listings


def is_store_missing(config: ServiceConfig) -> bool:
    """Whether the job store of a configuration is a file that does not exist."""
    return bool(_databases().is_missing(config.service.store))


def _databases() -> Any:
    """Return the module of databases; without SQLAlchemy say what to install."""
    try:
        from lakehand.service.store import database
    except ModuleNotFoundError as error:
        message = f"the job store needs the package {error.name}, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[service]"') from error
    return database


def open_stores(config: ServiceConfig, *, create: bool) -> ClientStores:
    """Open the job store of a configuration; one that does not exist is an error or created."""
    url = config.service.store
    if is_store_missing(config) and not create:
        message = f"there is no job store at {url} yet"
        hint = "lakehand serve creates it, and so do lakehand tables add and tables discover"
        raise JobStoreError(message, hint=hint)
    return stores_of(_databases().open_database(url))


def stores_of(opened: Database) -> ClientStores:
    """Return the parts of a job store that is open."""
    from lakehand.service.store.budgets import BudgetStore
    from lakehand.service.store.events import EventLog
    from lakehand.service.store.job_queue import JobQueue
    from lakehand.service.store.listings import Listings
    from lakehand.service.store.service_state import ServiceState
    from lakehand.service.store.table_registry import TableRegistry
    from lakehand.service.store.token_registry import TokenRegistry
    from lakehand.service.store.worker_registry import WorkerRegistry

    return ClientStores(
        opened,
        TableRegistry(opened),
        JobQueue(opened),
        WorkerRegistry(opened),
        BudgetStore(opened),
        ServiceState(opened),
        EventLog(opened),
        TokenRegistry(opened),
        Listings(opened),
    )
