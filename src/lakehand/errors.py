"""Every error that lakehand raises on purpose, in one tree.

The class tells a program what to do; the message tells a person what happened, to what, and what
to do about it.

LakehandError
├── ValidationError                 an argument or setting has a bad value (exit 2)
│   ├── UnknownSettingError         no such setting; suggests the nearest name
│   ├── UnknownColumnError          no such column; names those there are
│   ├── DuplicateKeyError           several rows of one key are to be in the table; shows some
│   ├── PredicateError              the predicate cannot be parsed or decided
│   └── ConfigError                 the service's configuration file is wrong; says where
├── NotInstalledError               an optional part is missing; names the install command (exit 2)
├── StorageError                    the object store failed
│   ├── ObjectNotFoundError
│   ├── ObjectExistsError           put-if-absent found the key taken
│   ├── AccessDeniedError           credentials are missing or not sufficient
│   ├── StoreUnreachableError       no answer, a wrong endpoint, a time-out (retryable)
│   ├── StoreQuotaError             the store or the disk is full
│   ├── UnsafePathError             a path that would leave its root
│   └── ConditionalPutError         no put-if-absent, so nothing may be committed to it
├── TableError                      the table cannot be used as asked
│   ├── NotATableError
│   ├── TableExistsError
│   ├── VersionNotFoundError        the version or time asked for is not (or no longer) in the log
│   ├── CorruptLogError             the log has a gap, lacks an obligatory entry or cannot be read
│   ├── CorruptFileError            a data file, checkpoint or deletion vector cannot be trusted
│   ├── SchemaMismatchError         data and table do not agree
│   │   └── ConstraintError         rows break a rule of the table; names the rule and some rows
│   └── RefusedError                lakehand does not do this to this table; names the feature
├── CommitError                     the commit did not succeed
│   ├── CommitConflictError         another writer changed what this commit had read (exit 3)
│   ├── ReplanError                 the plan no longer fits the table; plan again (exit 3)
│   └── CommitUnknownError          no answer whether the commit landed: keep every file
├── SinkError                       a sink cannot do this now
│   ├── SinkStateError              a call out of order, or on a closed sink
│   ├── BackpressureError           more rows wait than may; nothing of the batch was taken (retry)
│   ├── WriterCollisionError        another process writes under the same writer id
│   ├── WriteTimeoutError           a write is not done within write_timeout; it goes on (retryable)
│   └── EpochGapError               an epoch is missing before this one
├── HotTierError                    the hot tier cannot do this now
│   ├── HotLogError                 its log cannot be trusted or written; nothing was dropped
│   ├── HotLogLockedError           its log is open in another process
│   └── HotTableTakenError          another hot table has changes by key for the same table
├── ProofError                      rows are not proved equal; nothing was changed (exit 4)
├── EngineError                     tasks could not be run
│   ├── JavaMissingError
│   ├── WorkerMismatchError         an executor has another lakehand or Python than the driver
│   └── TaskFailedError             a task failed for good
├── RunError                        the run's ledger or fate does not allow to go on
│   └── RunTakenError               another run has taken this one over
├── ServiceError                    the service cannot do this now
│   ├── JobStoreError               the job store cannot be reached or used (retryable)
│   ├── JobNotFoundError            no such job, table or worker
│   ├── JobStateError               the job is in a state that does not allow this
│   └── LeaseLostError              another worker has this job now; the work is to be stopped
└── CancelledError                  stopped on request; nothing was committed
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "AccessDeniedError",
    "BackpressureError",
    "CancelledError",
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
    "LakehandError",
    "LeaseLostError",
    "NotATableError",
    "NotInstalledError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "PredicateError",
    "ProofError",
    "RefusedError",
    "ReplanError",
    "RunError",
    "RunTakenError",
    "SchemaMismatchError",
    "ServiceError",
    "SinkError",
    "SinkStateError",
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

#: Columns that a message names; some tables have thousands.
_MOST_NAMES = 50

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFLICT = 3
EXIT_PROOF = 4
EXIT_UNHEALTHY = 5


class LakehandError(Exception):
    """Base of all errors. `code` is stable; `retryable`: the same call may succeed later."""

    code: ClassVar[str] = "LAKEHAND_ERROR"
    exit_code: ClassVar[int] = EXIT_FAILED
    retryable: bool = False
    #: Attributes that every error of the class has, None where nobody knew better.
    _attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, *, hint: str | None = None, **attributes: Any) -> None:
        self.message = message
        self.hint = hint
        self.attributes: Mapping[str, Any] = {**dict.fromkeys(self._attributes), **attributes}
        for name, value in self.attributes.items():
            setattr(self, name, value)
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message

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


def _rebuild(
    kind: type[LakehandError], message: str, hint: str | None, attributes: dict[str, Any]
) -> LakehandError:
    error = kind.__new__(kind)
    LakehandError.__init__(error, message, hint=hint, **attributes)
    return error


def error_from_json(value: Mapping[str, Any]) -> LakehandError:
    """Return the error that `LakehandError.to_json` described, for example in another process."""
    kinds = {kind.code: kind for kind in _all_kinds(LakehandError)}
    known = {"code", "message", "hint", "retryable"}
    attributes = {name: item for name, item in value.items() if name not in known}
    kind = kinds.get(value["code"], LakehandError)
    return _rebuild(kind, value["message"], value.get("hint"), attributes)


def describe_error(error: Exception) -> dict[str, Any]:
    """Return any error as the `error` member of a JSON document."""
    if isinstance(error, LakehandError):
        return error.to_json()
    return {
        "code": "INTERNAL",
        "message": f"{type(error).__name__}: {error}",
        "hint": "this is a fault of lakehand; run again with --log-level debug and report it",
        "retryable": False,
    }


def _all_kinds(kind: type[LakehandError]) -> Iterator[type[LakehandError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all_kinds(child)


def is_retryable(error: BaseException) -> bool:
    """Say whether the same call may succeed later without a change."""
    return bool(getattr(error, "retryable", False))


class ValidationError(LakehandError):
    """An argument or setting has a bad value. Attributes: `field`, `value`."""

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
    """There is no setting of this name."""

    code = "UNKNOWN_SETTING"


class UnknownColumnError(ValidationError):
    """There is no column of this name."""

    code = "UNKNOWN_COLUMN"

    def __init__(self, column: str, columns: Iterable[str], *, hint: str | None = None) -> None:
        known = list(columns)
        more = f" and {len(known) - _MOST_NAMES:,} more" if len(known) > _MOST_NAMES else ""
        shown = ", ".join(known[:_MOST_NAMES]) + more
        nearest = difflib.get_close_matches(column, known, n=1)
        message = f"no column named {column!r}; the columns are: {shown}"
        if nearest:
            hint = f"did you mean {nearest[0]}?"
        super().__init__(message, field=column, hint=hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, dict(self.attributes)))


class DuplicateKeyError(ValidationError):
    """Several rows of one key are to be in the table at once. Attributes: `field`, `value`."""

    code = "DUPLICATE_KEY"


class PredicateError(ValidationError):
    """The predicate cannot be parsed, or cannot be decided from what is known."""

    code = "PREDICATE_ERROR"


class ConfigError(ValidationError):
    """The configuration file of the service is wrong; the message says where, and why."""

    code = "CONFIG_ERROR"


class NotInstalledError(LakehandError):
    """An optional part of lakehand is not installed."""

    code = "NOT_INSTALLED"
    exit_code = EXIT_USAGE


class StorageError(LakehandError):
    """The object store failed. Attributes: `path`, `operation`, `store_code`, `status`."""

    code = "STORAGE_ERROR"
    _attributes = ("path", "operation", "store_code", "status")


class ObjectNotFoundError(StorageError):
    """There is no object under this key."""

    code = "FILE_NOT_FOUND"


class ObjectExistsError(StorageError):
    """Put-if-absent found that the key is taken."""

    code = "OBJECT_EXISTS"


class AccessDeniedError(StorageError):
    """Credentials are missing or do not allow this."""

    code = "ACCESS_DENIED"


class StoreUnreachableError(StorageError):
    """The store gave no answer in time, or an answer that says: later."""

    code = "STORE_UNREACHABLE"
    retryable = True


class StoreQuotaError(StorageError):
    """The store or the disk is full."""

    code = "STORE_FULL"


class UnsafePathError(StorageError):
    """The path would leave its root, or holds bytes that no path may hold."""

    code = "UNSAFE_PATH"
    exit_code = EXIT_USAGE


class ConditionalPutError(StorageError):
    """The store cannot put-if-absent, so concurrent commits could overwrite each other."""

    code = "NO_CONDITIONAL_PUT"


class TableError(LakehandError):
    """The table cannot be used as asked. Attribute: `table`."""

    code = "TABLE_ERROR"

    def __init__(
        self, message: str, *, table: str | None = None, hint: str | None = None, **attributes: Any
    ) -> None:
        super().__init__(message, hint=hint, table=table, **attributes)


class NotATableError(TableError):
    """There is no table of a known format here."""

    code = "NOT_A_TABLE"


class TableExistsError(TableError):
    """A table is to be created where one is."""

    code = "TABLE_EXISTS"


class VersionNotFoundError(TableError):
    """The version or time asked for is not in the log.

    Attributes: `version`, `earliest`, `latest`.
    """

    code = "VERSION_NOT_FOUND"


class CorruptLogError(TableError):
    """The log has a gap, lacks an obligatory entry or cannot be read.

    Attributes: `version`, `path`.
    """

    code = "CORRUPT_LOG"


class CorruptFileError(TableError):
    """A file's bytes cannot be trusted. Attribute: `path`."""

    code = "CORRUPT_FILE"


class SchemaMismatchError(TableError):
    """Data and table do not agree. Attribute: `difference`."""

    code = "SCHEMA_MISMATCH"


class ConstraintError(SchemaMismatchError):
    """Rows break a rule of the table. Attributes: `constraint`, `condition`, `rows`."""

    code = "CONSTRAINT_VIOLATED"


class RefusedError(TableError):
    """lakehand does not do this to this table. Attributes: `operation`, `feature`."""

    code = "REFUSED"


class CommitError(LakehandError):
    """The commit did not succeed. Attributes: `table`, `expected_version`, `actual_version`."""

    code = "COMMIT_FAILED"
    _attributes = ("table", "expected_version", "actual_version")


class CommitConflictError(CommitError):
    """Another writer changed what this commit had read. Nothing was written; try again."""

    code = "CONFLICT"
    exit_code = EXIT_CONFLICT
    retryable = True


class ReplanError(CommitError):
    """The plan no longer fits the table. Nothing was written; plan again."""

    code = "REPLAN"
    exit_code = EXIT_CONFLICT
    retryable = True


class CommitUnknownError(CommitError):
    """The store did not say whether the commit landed. Keep every file; look before retrying."""

    code = "COMMIT_UNKNOWN"


class SinkError(LakehandError):
    """A sink cannot do this now. Attributes: `table`, `writer_id`, `epoch`."""

    code = "SINK_ERROR"
    _attributes: ClassVar[tuple[str, ...]] = ("table", "writer_id", "epoch")


class SinkStateError(SinkError):
    """A call out of order, or on a closed sink."""

    code = "SINK_STATE"


class BackpressureError(SinkError):
    """More rows wait for storage than may. Nothing of the batch was taken; try again later."""

    code = "BACKPRESSURE"
    retryable = True


class WriterCollisionError(SinkError):
    """Another process writes under the same writer id. Nothing of this epoch was committed."""

    code = "WRITER_COLLISION"


class WriteTimeoutError(SinkError):
    """A write is not done within `write_timeout`. It goes on: the same call waits for it again.

    Attributes: `table`, `writer_id`, `epoch`, `operation`, `timeout_seconds`.
    """

    code = "WRITE_TIMEOUT"
    retryable = True
    _attributes = ("table", "writer_id", "epoch", "operation", "timeout_seconds")


class EpochGapError(SinkError):
    """An epoch is missing before this one. Nothing was written."""

    code = "EPOCH_GAP"


class HotTierError(LakehandError):
    """The hot tier cannot do this now. Attributes: `table`, `path`."""

    code = "HOT_TIER_ERROR"
    _attributes: ClassVar[tuple[str, ...]] = ("table", "path")


class HotLogError(HotTierError):
    """The write-ahead log cannot be trusted, or not be written. Nothing of it was dropped."""

    code = "HOT_LOG"


class HotLogLockedError(HotTierError):
    """The write-ahead log is open already, here or in another process."""

    code = "HOT_LOG_LOCKED"


class HotTableTakenError(HotTierError):
    """Another hot table has changes by key for the same table, or may have.

    Attributes: `table`, `path` (its log), `host`, `writer_id`.
    """

    code = "HOT_TABLE_TAKEN"
    _attributes = ("table", "path", "host", "writer_id")


class ProofError(LakehandError):
    """The rewritten rows are not proved equal to the rows read. Nothing was changed."""

    code = "PROOF_FAILED"
    exit_code = EXIT_PROOF


class EngineError(LakehandError):
    """Tasks could not be run."""

    code = "ENGINE_ERROR"


class JavaMissingError(EngineError):
    """Spark needs Java 17 or later and there is none."""

    code = "JAVA_MISSING"
    exit_code = EXIT_USAGE


class WorkerMismatchError(EngineError):
    """An executor has another lakehand or Python than the driver."""

    code = "WORKER_MISMATCH"


class TaskFailedError(EngineError):
    """A task failed for good. Attributes: `task`, `attempts`."""

    code = "TASK_FAILED"


class RunError(LakehandError):
    """The run's ledger does not allow to go on. Attribute: `run_id`."""

    code = "RUN_ERROR"


class RunTakenError(RunError):
    """Another run has taken this one over; this one must stop and delete nothing."""

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


class LeaseLostError(ServiceError):
    """Another worker has this job now. What was committed is in the table; the rest is theirs."""

    code = "LEASE_LOST"
    _attributes = ("job", "fence")


class CancelledError(LakehandError):
    """Stopped on request. Nothing was committed."""

    code = "CANCELLED"
