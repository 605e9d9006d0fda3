"""Statements, as values. The grammar makes them, and `execute` runs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.rows.merge_clauses import MergeClause

#: What SHOW lists: system tables, and the settings.
Shown = Literal["jobs", "tables", "policies", "budgets", "workers", "settings"]
SHOWN: tuple[Shown, ...] = ("jobs", "tables", "policies", "budgets", "workers", "settings")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableName:
    """A table as a statement names it: a path, a URL, or the name of a registered table."""

    text: str
    #: Of delta.`url` and lance.`url`; the table must have it.
    format: str | None = None
    #: Whether it was written as a path or URL. A name without a service is one, too.
    is_path: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunVerb:
    """A method of `Table`, with its arguments and settings."""

    #: As written: `OPTIMIZE`, `VACUUM`, ...
    keyword: str
    #: Name of the method; `optimize` is `cluster` or `compact`, as the table declares.
    verb: str
    table: TableName
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Return the job without waiting for it.
    is_async: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """MERGE INTO t USING s ON ... WHEN ..."""

    table: TableName
    #: The name by which columns of the table are qualified.
    target: str
    source: TableName
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Describe:
    """DESCRIBE HISTORY or DESCRIBE DETAIL."""

    what: Literal["history", "detail"]
    table: TableName
    limit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SetProperties:
    """ALTER TABLE t SET TBLPROPERTIES."""

    table: TableName
    properties: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsetProperties:
    """ALTER TABLE t UNSET TBLPROPERTIES."""

    table: TableName
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterBy:
    """ALTER TABLE t CLUSTER BY (a, b), or CLUSTER BY NONE."""

    table: TableName
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeSettings:
    """ALTER TABLE t SET (name = value), or RESET: settings of a registered table."""

    table: TableName
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Settings to remove; None: none.
    removed: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseTable:
    """ALTER TABLE t PAUSE [UNTIL time], or RESUME."""

    table: TableName
    is_paused: bool = True
    until: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explain:
    """What a statement would do."""

    statement: RunVerb


@dataclass(frozen=True, kw_only=True, slots=True)
class Show:
    """SHOW JOBS, TABLES, ..."""

    what: Shown
    like: str | None = None
    #: A condition for DuckDB; values of parameters are in it as literals.
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeJob:
    """CANCEL JOB n, or RETRY JOB n."""

    action: Literal["cancel", "retry"]
    job: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A SELECT over system tables; its parameters go to DuckDB unchanged."""

    text: str
    parameters: Any = None


Statement = (
    RunVerb
    | Merge
    | Describe
    | SetProperties
    | UnsetProperties
    | ClusterBy
    | ChangeSettings
    | PauseTable
    | Explain
    | Show
    | ChangeJob
    | Query
)
#: Statements that change nothing, so that everyone who may look may run them.
READ_ONLY = (Query, Show, Describe, Explain)
