"""Every error that lakehand raises on purpose, as one class hierarchy.

Programs decide by the class; the message tells a person what happened, to which object, and what to
do.

LakehandError
├── ValidationError                 an argument or setting has an invalid value (exit 2)
│   ├── UnknownSettingError         no such setting; suggests the nearest name
│   ├── UnknownColumnError          no such column; lists the columns
│   ├── DuplicateKeyError           several rows would have the same key; shows some
│   ├── MultipleMatchesError        several rows of a merge's source would change one row
│   ├── PredicateError              the predicate cannot be parsed or evaluated
│   ├── SqlError                    the statement is not valid SQL; shows where
│   └── ConfigError                 the service's configuration file is invalid; says where
├── NotInstalledError               an optional dependency is missing; has the command (exit 2)
├── CatalogError                    a catalog has no such table, or cannot be used (exit 2)
├── StorageError                    the object store failed
│   ├── ObjectNotFoundError
│   ├── ObjectExistsError           put-if-absent failed because the key exists
│   ├── ObjectChangedError          put-if-match failed because the object has another tag
│   ├── AccessDeniedError           credentials are missing or not sufficient
│   ├── StoreUnreachableError       no answer, a wrong endpoint, a timeout (retryable)
│   ├── StoreQuotaError             the store or the disk is full
│   ├── UnsafePathError             a path that would leave the table's root
│   └── ConditionalPutError         no put-if-absent, so lakehand does not commit there
├── TableError                      the table does not support the request
│   ├── NotATableError
│   ├── TableExistsError
│   ├── VersionNotFoundError        the version or timestamp is not, or no longer, in the log
│   ├── ChangeFeedError             the change data feed does not cover a version
│   ├── CorruptLogError             the log has a gap, lacks a required action or cannot be read
│   ├── CorruptFileError            a data file, checkpoint or deletion vector is corrupt
│   ├── SchemaMismatchError         the schema of the data does not match the table's
│   │   └── ConstraintError         rows violate a constraint; names it and shows some rows
│   └── RefusedError                lakehand does not support this on this table
├── CommitError                     the commit failed
│   ├── CommitConflictError         another writer changed what this commit had read (exit 3)
│   ├── ReplanError                 the plan no longer matches the table; plan again (exit 3)
│   └── CommitUnknownError          unknown whether the commit succeeded: keep every file
├── SinkError                       the sink cannot do this now
│   ├── SinkStateError              a call in the wrong order, or on a closed sink
│   ├── BackpressureError           too many rows are buffered; the batch was not accepted (retry)
│   ├── WriterCollisionError        another process writes with the same writer id
│   ├── WriteTimeoutError           a write did not finish in time; it continues (retryable)
│   └── EpochGapError               the epoch before this one is missing
├── HotTierError                    the hot tier cannot do this now
│   ├── HotLogError                 its log is corrupt or cannot be written; nothing was deleted
│   ├── HotLogLockedError           its log is already open
│   └── HotTableTakenError          another hot table has unflushed upserts for the same table
├── ProofError                      rows are not proved equal; nothing was changed (exit 4)
├── EngineError                     tasks could not run
│   ├── JavaMissingError
│   ├── WorkerMismatchError         an executor has a different lakehand or Python than the driver
│   └── TaskFailedError             a task failed after all its attempts
├── RunError                        the run's ledger or fate does not allow it to continue
│   └── RunTakenError               another run has taken over this one
├── ServiceError                    the service cannot do this now
│   ├── JobStoreError               the job store cannot be reached or used (retryable)
│   ├── JobNotFoundError            no such job, table or worker
│   ├── JobStateError               the state of the job does not allow this
│   ├── JobTimedOutError            no progress for too long; the job is retried (retryable)
│   ├── RequestRefusedError         a request has no valid token, host or origin
│   └── LeaseLostError              another worker has this job now; stop working on it
└── CancelledError                  cancelled on request; nothing was committed
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "AccessDeniedError",
    "BackpressureError",
    "CancelledError",
    "CatalogError",
    "ChangeFeedError",
    "CommitConflictError",
    "CommitError",
    "CommitUnknownError",
    "ConditionalPutError",
    "ConfigError",
    "ConstraintError",
    "CorruptFileError",
    "CorruptLogError",
    "DuplicateKeyError",
    "EngineError",
    "EpochGapError",
    "HotLogError",
    "HotLogLockedError",
    "HotTableTakenError",
    "HotTierError",
    "JavaMissingError",
    "JobNotFoundError",
    "JobStateError",
    "JobStoreError",
    "JobTimedOutError",
    "LakehandError",
    "LeaseLostError",
    "MultipleMatchesError",
    "NotATableError",
    "NotInstalledError",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "PredicateError",
    "ProofError",
    "RefusedError",
    "ReplanError",
    "RequestRefusedError",
    "RunError",
    "RunTakenError",
    "SchemaMismatchError",
    "ServiceError",
    "SinkError",
    "SinkStateError",
    "SqlError",
    "StorageError",
    "StoreQuotaError",
    "StoreUnreachableError",
    "TableError",
    "TableExistsError",
    "TaskFailedError",
    "UnknownColumnError",
    "UnknownSettingError",
    "UnsafePathError",
    "ValidationError",
    "VersionNotFoundError",
    "WorkerMismatchError",
    "WriteTimeoutError",
    "WriterCollisionError",
    "describe_error",
    "error_from_json",
    "is_retryable",
]

#: Maximum number of column names in a message; some tables have thousands.
_MAX_COLUMN_NAMES = 50

#: Options in hints, and commands in backticks, which are the same everywhere.
_OPTION = re.compile(r"`[^`]*`|--([a-z][a-z-]+)( (?:local|spark|a,b)\b)?")
#: Options that are arguments of the methods, too.
_ARGUMENTS = frozenset(
    {
        "accept-changed-files",
        "accept-data-loss",
        "allow-short-retention",
        "by",
        "deep",
        "engine",
        "full",
        "restore-deleted-rows",
    }
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFLICT = 3
EXIT_PROOF = 4
EXIT_UNHEALTHY = 5


class LakehandError(Exception):
    """Base class of all errors. `code` is stable; `retryable`: the same call may succeed later."""

    code: ClassVar[str] = "LAKEHAND_ERROR"
    exit_code: ClassVar[int] = EXIT_FAILED
    retryable: bool = False
    #: Attributes that every error of the class has; None if not known.
    _attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, hint: str | None = None, **attributes: Any) -> None:
        self.message = message
        self.hint = hint
        self.attributes: Mapping[str, Any] = {**dict.fromkeys(self._attributes), **attributes}
        for name, value in self.attributes.items():
            setattr(self, name, value)
        super().__init__(message)

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}\n\nhint: {_OPTION.sub(_as_argument, self.hint)}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Attributes are keyword-only, which the default pickling of exceptions loses.
        return (_rebuild, (type(self), self.message, self.hint, dict(self.attributes)))

    def to_json(self) -> dict[str, Any]:
        """Return the error as the `error` member of a JSON document."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            **{name: value for name, value in self.attributes.items() if value is not None},
        }


def _as_argument(found: re.Match[str]) -> str:
    """Return an option of the command line, which hints use, as an argument in Python."""
    if found[1] not in _ARGUMENTS:
        return found[0]
    value = f'"{found[2].strip()}"' if found[2] else "True"
    return f"{found[1].replace('-', '_')}={value}"


def _rebuild(
    kind: type[LakehandError], message: str, hint: str | None, attributes: dict[str, Any]
) -> LakehandError:
    error = kind.__new__(kind)
    LakehandError.__init__(error, message, hint=hint, **attributes)
    return error


def error_from_json(value: Mapping[str, Any]) -> LakehandError:
    """Return the error that `LakehandError.to_json` serialized, for example in another process."""
    kinds = {kind.code: kind for kind in _subclasses(LakehandError)}
    known = {"code", "message", "hint", "retryable"}
    attributes = {name: item for name, item in value.items() if name not in known}
    kind = kinds.get(value["code"], LakehandError)
    return _rebuild(kind, value["message"], value.get("hint"), attributes)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return any error as the `error` member of a JSON document."""
    if isinstance(error, LakehandError):
        return error.to_json()
    return {
        "code": "INTERNAL",
        "message": f"{type(error).__name__}: {error}",
        "hint": "this is a bug in lakehand; run again with --log-level debug and report it",
        "retryable": False,
    }


def _subclasses(kind: type[LakehandError]) -> Iterator[type[LakehandError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)


def is_retryable(error: BaseException) -> bool:
    """Return whether the same call may succeed later without a change."""
    return bool(getattr(error, "retryable", False))


class ValidationError(LakehandError):
    """An argument or setting has an invalid value. Attributes: `field`, `value`."""

    code = "VALIDATION_ERROR"
    exit_code = EXIT_USAGE

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: Any = None,
        hint: str | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(message, hint=hint, field=field, value=value, **attributes)


class UnknownSettingError(ValidationError):
    """There is no setting with this name."""

    code = "UNKNOWN_SETTING"


class UnknownColumnError(ValidationError):
    """There is no column with this name."""

    code = "UNKNOWN_COLUMN"

    def __init__(self, column: str, columns: Iterable[str], *, hint: str | None = None) -> None:
        known = list(columns)
        more = (
            f" and {len(known) - _MAX_COLUMN_NAMES:,} more"
            if len(known) > _MAX_COLUMN_NAMES
            else ""
        )
        shown = ", ".join(known[:_MAX_COLUMN_NAMES]) + more
        nearest = difflib.get_close_matches(column, known, n=1)
        message = f"no column named {column!r}; the columns are: {shown}"
        if nearest:
            hint = f"did you mean {nearest[0]}?"
        super().__init__(message, field=column, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, dict(self.attributes)))


class DuplicateKeyError(ValidationError):
    """Several rows would have the same key. Attributes: `field`, `value`."""

    code = "DUPLICATE_KEY"


class MultipleMatchesError(ValidationError):
    """Several rows of a merge's source match one row that a clause changes. Attribute: `rows`."""

    code = "MULTIPLE_MATCHES"


class PredicateError(ValidationError):
    """The predicate cannot be parsed, or cannot be evaluated with the available statistics."""

    code = "PREDICATE_ERROR"


class SqlError(ValidationError):
    """The statement is not valid, or not allowed here. Attributes: `line`, `column`."""

    code = "SQL_ERROR"


class ConfigError(ValidationError):
    """The configuration file of the service is wrong; the message says where, and why."""

    code = "CONFIG_ERROR"


class NotInstalledError(LakehandError):
    """An optional dependency of lakehand is not installed."""

    code = "NOT_INSTALLED"
    exit_code = EXIT_USAGE


class CatalogError(LakehandError):
    """A catalog has no such table, or cannot be used. Attribute: `table`."""

    code = "CATALOG_ERROR"
    exit_code = EXIT_USAGE
    _attributes = ("table",)


class StorageError(LakehandError):
    """The object store failed. Attributes: `path`, `operation`, `store_code`, `status`."""

    code = "STORAGE_ERROR"
    _attributes = ("path", "operation", "store_code", "status")


class ObjectNotFoundError(StorageError):
    """The object does not exist."""

    code = "FILE_NOT_FOUND"


class ObjectExistsError(StorageError):
    """Put-if-absent failed because the key exists."""

    code = "OBJECT_EXISTS"


class ObjectChangedError(StorageError):
    """Put-if-match failed because the object has another tag, or does not exist."""

    code = "OBJECT_CHANGED"


class AccessDeniedError(StorageError):
    """Credentials are missing or not sufficient."""

    code = "ACCESS_DENIED"


class StoreUnreachableError(StorageError):
    """The store did not answer in time, or asked to retry later."""

    code = "STORE_UNREACHABLE"
    retryable = True


class StoreQuotaError(StorageError):
    """The store or the disk is full."""

    code = "STORE_FULL"


class UnsafePathError(StorageError):
    """The path would leave the table's root, or has characters that are not allowed."""

    code = "UNSAFE_PATH"
    exit_code = EXIT_USAGE


class ConditionalPutError(StorageError):
    """The store has no put-if-absent, so concurrent commits could overwrite each other."""

    code = "NO_CONDITIONAL_PUT"


class TableError(LakehandError):
    """The table does not support the request. Attribute: `table`."""

    code = "TABLE_ERROR"

    def __init__(
        self, message: str, *, table: str | None = None, hint: str | None = None, **attributes: Any
    ) -> None:
        super().__init__(message, hint=hint, table=table, **attributes)


class NotATableError(TableError):
    """There is no table of a supported format at this location."""

    code = "NOT_A_TABLE"


class TableExistsError(TableError):
    """The table to create already exists."""

    code = "TABLE_EXISTS"


class VersionNotFoundError(TableError):
    """The version or timestamp is not, or no longer, in the log.

    Attributes: `version`, `earliest`, `latest`.
    """

    code = "VERSION_NOT_FOUND"


class ChangeFeedError(TableError):
    """The change data feed does not cover a version. Attribute: `version`."""

    code = "CHANGE_FEED"


class CorruptLogError(TableError):
    """The log has a gap, lacks a required action or cannot be read.

    Attributes: `version`, `path`.
    """

    code = "CORRUPT_LOG"


class CorruptFileError(TableError):
    """A data file, checkpoint or deletion vector is corrupt. Attribute: `path`."""

    code = "CORRUPT_FILE"


class SchemaMismatchError(TableError):
    """The schema of the data does not match the table's. Attribute: `difference`."""

    code = "SCHEMA_MISMATCH"


class ConstraintError(SchemaMismatchError):
    """Rows violate a constraint of the table. Attributes: `constraint`, `condition`, `rows`."""

    code = "CONSTRAINT_VIOLATED"


class RefusedError(TableError):
    """lakehand does not support this on this table. Attributes: `operation`, `feature`."""

    code = "REFUSED"


class CommitError(LakehandError):
    """The commit failed. Attributes: `table`, `expected_version`, `actual_version`."""

    code = "COMMIT_FAILED"
    _attributes = ("table", "expected_version", "actual_version")


class CommitConflictError(CommitError):
    """Another writer changed what this commit had read. Nothing was written; retry."""

    code = "CONFLICT"
    exit_code = EXIT_CONFLICT
    retryable = True


class ReplanError(CommitError):
    """The plan no longer matches the table. Nothing was written; plan again."""

    code = "REPLAN"
    exit_code = EXIT_CONFLICT
    retryable = True


class CommitUnknownError(CommitError):
    """It is unknown whether the commit succeeded. Keep every file; check before retrying."""

    code = "COMMIT_UNKNOWN"


class SinkError(LakehandError):
    """The sink cannot do this now. Attributes: `table`, `writer_id`, `epoch`."""

    code = "SINK_ERROR"
    _attributes: ClassVar[tuple[str, ...]] = ("table", "writer_id", "epoch")


class SinkStateError(SinkError):
    """A method was called in the wrong order, or on a closed sink."""

    code = "SINK_STATE"


class BackpressureError(SinkError):
    """Too many rows are buffered. Nothing of the batch was accepted; retry later."""

    code = "BACKPRESSURE"
    retryable = True


class WriterCollisionError(SinkError):
    """Another process writes with the same writer id. Nothing of this epoch was committed."""

    code = "WRITER_COLLISION"


class WriteTimeoutError(SinkError):
    """A write did not finish within `write_timeout`. It continues: call again to wait for it.

    Attributes: `table`, `writer_id`, `epoch`, `operation`, `timeout_seconds`.
    """

    code = "WRITE_TIMEOUT"
    retryable = True
    _attributes = ("table", "writer_id", "epoch", "operation", "timeout_seconds")


class EpochGapError(SinkError):
    """The epoch before this one is missing. Nothing was written."""

    code = "EPOCH_GAP"


class HotTierError(LakehandError):
    """The hot tier cannot do this now. Attributes: `table`, `path`."""

    code = "HOT_TIER_ERROR"
    _attributes: ClassVar[tuple[str, ...]] = ("table", "path")


class HotLogError(HotTierError):
    """The write-ahead log is corrupt or cannot be written. Nothing in it was deleted."""

    code = "HOT_LOG"


class HotLogLockedError(HotTierError):
    """The write-ahead log is already open, in this or another process."""

    code = "HOT_LOG_LOCKED"


class HotTableTakenError(HotTierError):
    """Another hot table has, or may have, unflushed upserts for the same table.

    Attributes: `table`, `path` (its log), `host`, `writer_id`.
    """

    code = "HOT_TABLE_TAKEN"
    _attributes = ("table", "path", "host", "writer_id")


class ProofError(LakehandError):
    """The rewritten rows are not proved equal to the rows that were read. Nothing was changed."""

    code = "PROOF_FAILED"
    exit_code = EXIT_PROOF


class EngineError(LakehandError):
    """Tasks could not run."""

    code = "ENGINE_ERROR"


class JavaMissingError(EngineError):
    """Spark needs Java 17 or later, which is not installed."""

    code = "JAVA_MISSING"
    exit_code = EXIT_USAGE


class WorkerMismatchError(EngineError):
    """An executor has a different version of lakehand or Python than the driver."""

    code = "WORKER_MISMATCH"


class TaskFailedError(EngineError):
    """A task failed after all its attempts. Attributes: `task`, `attempts`."""

    code = "TASK_FAILED"


class RunError(LakehandError):
    """The run's ledger does not allow it to continue. Attribute: `run_id`."""

    code = "RUN_ERROR"


class RunTakenError(RunError):
    """Another run has taken over this one; this one must stop and delete nothing."""

    code = "RUN_TAKEN"


class ServiceError(LakehandError):
    """The service cannot do this now."""

    code = "SERVICE_ERROR"


class JobStoreError(ServiceError):
    """The job store cannot be reached or used. Running jobs are not affected."""

    code = "JOB_STORE"
    retryable = True


class JobNotFoundError(ServiceError):
    """No such job, table or worker is in the job store."""

    code = "JOB_NOT_FOUND"
    exit_code = EXIT_USAGE


class JobStateError(ServiceError):
    """The job is in a state that does not allow this; says which."""

    code = "JOB_STATE"
    exit_code = EXIT_USAGE
    _attributes = ("job", "state")


class RequestRefusedError(ServiceError):
    """The service has refused a request: its token, its host or its origin is not allowed."""

    code = "REQUEST_REFUSED"
    exit_code = EXIT_USAGE


class LeaseLostError(ServiceError):
    """Another worker has this job now. What was committed is in the table; the rest is theirs."""

    code = "LEASE_LOST"
    _attributes = ("job", "fence")


class JobTimedOutError(ServiceError):
    """A job made no progress for `job_timeout` and was ended. What it had committed stays."""

    code = "JOB_TIMED_OUT"
    retryable = True
    _attributes = ("job", "seconds")


class CancelledError(LakehandError):
    """Cancelled on request. Nothing was committed."""

    code = "CANCELLED"
