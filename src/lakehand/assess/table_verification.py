"""Compares the rows of a table with its log and its proofs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lakehand import errors
from lakehand.assess.structure_check import check_structure
from lakehand.engine.runner_contract import granted_cores
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import ProvedCommit, SupportsVerification
from lakehand.formats.rows import DeletedPositionsWorker
from lakehand.formats.worker import Decoder, FormatWorker, NotDecodable, TaskLimits
from lakehand.model.documents import DocumentError, read_value
from lakehand.model.verification import Agreement, LogCheck, ProofCheck, RowsSeen, Verification
from lakehand.model.work import DataFile, Digest, Proof
from lakehand.observe import reported
from lakehand.prove.digest import ALGORITHM, ENGINE, Digester
from lakehand.prove.evidence import digest_hex, is_readable, total_digest, with_rows, without_rows
from lakehand.rows.deletes import positions_digest
from lakehand.runs.operation import Call, CallOptions, divide_files, open_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakehand.engine import TaskOutcome
    from lakehand.formats.rows import Positions
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hidden:
    """Deleted positions of each file, or why they cannot be read."""

    positions: Sequence[Positions] = ()
    failure: errors.LakehandError | None = None

    @property
    def is_gone(self) -> bool:
        return isinstance(self.failure, errors.ObjectNotFoundError)


def check_positions_again(
    blank: ProofCheck,
    commit: ProvedCommit,
    worker: FormatWorker,
    *,
    table: FormatTable,
    limits: TaskLimits,
    digest: Callable[[Sequence[DataFile]], tuple[Digest | None, errors.LakehandError | None]],
) -> ProofCheck:
    """Compare deletion vectors with the proof, and new files, read by `digest`, with theirs.

    Files that stay are not read: the commit did not change them.
    """
    if not isinstance(worker, DeletedPositionsWorker):
        message = "the format of the table does not tell which rows of a file are deleted"
        return replace(blank, reason="not_recorded", message=message)
    before = {file.path: file for file in commit.inputs}
    staying = [file for file in commit.outputs if file.path in before]
    came = [file for file in commit.outputs if file.path not in before]

    def hidden(files: Sequence[DataFile]) -> _Hidden:
        try:
            return _Hidden(positions=worker.deleted_positions(files, limits=limits))
        except (errors.CorruptFileError, errors.ObjectNotFoundError) as error:
            gone = getattr(error, "path", None) in table.missing_files(files)
            return _Hidden(failure=_not_found(error) if gone else error)

    old, new = hidden([before[file.path] for file in staying]), hidden(staying)
    found, unreadable = digest(came) if came else (None, None)
    if unreadable is not None and new.failure is None:
        new = _Hidden(failure=unreadable)
    proof = commit.proof or {}
    paths = [file.path for file in staying]
    outcome, reason, message = next(_verdicts(proof, paths, old=old, new=new, came=found))
    record = {"equal": True, "differs": False}.get(outcome)
    return replace(blank, outcome=outcome, reason=reason, message=message, matches_record=record)


def _not_found(error: errors.LakehandError) -> errors.ObjectNotFoundError:
    path = getattr(error, "path", None)
    return errors.ObjectNotFoundError(error.message, path=path, operation="verify", hint=error.hint)


def _verdicts(
    proof: Mapping[str, Any],
    paths: Sequence[str],
    *,
    old: _Hidden,
    new: _Hidden,
    came: Digest | None,
) -> Iterator[tuple[Agreement, str | None, str]]:
    """Yield the verdicts that apply, the most specific first."""
    if new.failure is not None and new.is_gone:
        yield "cannot_compare", "outputs_gone", new.failure.message
    if new.failure is not None:
        yield "differs", "unreadable_output", new.failure.message
    added = _added(proof, came)
    if added is False:
        yield "differs", "record", "the new files do not have the rows of the proof"
    if old.failure is not None:
        reason = "inputs_gone" if old.is_gone else "unreadable_input"
        yield "cannot_compare", reason, old.failure.message
    went, back = _differences(paths, old.positions, new.positions)
    if back:
        yield "differs", "positions", f"deleted rows of {back[0]} are visible again"
    if positions_digest(went) != proof["positions_digest"]:
        yield "differs", "positions", "the deleted rows are not those of the proof"
    if added is None:
        message = "the commit has no comparable digest of the new rows"
        yield "cannot_compare", "not_recorded", message
    rows = sum(len(positions) for _, positions in went)
    kept = f" and {proof['added_rows']:,} new rows exist" if proof.get("added_rows") else ""
    yield "equal", None, f"{rows:,} rows are deleted as recorded{kept}"


def _differences(
    paths: Sequence[str], old: Sequence[Positions], new: Sequence[Positions]
) -> tuple[list[tuple[str, Positions]], list[str]]:
    """Return the deleted rows of each file, and files in which deleted rows are visible again."""
    went, back = [], []
    for path, before, after in zip(paths, old, new, strict=True):
        went.append((path, np.setdiff1d(after, before, assume_unique=True)))
        if len(np.setdiff1d(before, after, assume_unique=True)):
            back.append(path)
    return went, back


def _added(proof: Mapping[str, Any], came: Digest | None) -> bool | None:
    """Return whether the new rows are those of the proof; None if not known."""
    if not proof.get("added_rows") and came is None:
        return True
    if came is None or came.rows != proof.get("added_rows"):
        return False
    algorithms, engines = (str(proof.get(name)).split(",") for name in ("algorithm", "engine"))
    if not proof.get("added_digest") or came.algorithm not in algorithms:
        return None
    return digest_hex(came) == proof["added_digest"] if came.engine in engines else None


#: Number of latest commits that are searched for a proof before all of them are.
_NEWEST_COMMITS = 100
#: The file exists, but its bytes are not rows of the table.
_UNREADABLE = (errors.CorruptFileError, errors.SchemaMismatchError)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRequest:
    """Which proofs are checked in addition to the structure of the table: by default the latest."""

    #: The proof of this version's commit.
    version: int | None = None
    #: Every proof in the log.
    every: bool = False
    #: Whether proofs are checked at all.
    proofs: bool = True
    #: Whether the rows of every file are decoded.
    deep: bool = False


@reported
def verify(
    table: FormatTable,
    *,
    settings: Settings,
    request: VerifyRequest | None = None,
    **options: Unpack[CallOptions],
) -> Verification:
    """Check the structure of the table, then the proofs that `request` selects."""
    call = Call.begin("verify", table, settings, options)
    request = request or VerifyRequest()
    structure = check_structure(call, deep=request.deep)
    checks = _check_proofs(call, structure.log, request)
    proof_outcome = _total_outcome(checks)
    is_sound = not structure.findings and proof_outcome != "differs"
    return Verification(
        outcome="sound" if is_sound else "damaged",
        table=table.store.url,
        version=structure.log.version,
        readable_version=structure.log.readable_version,
        findings=structure.findings,
        deep=request.deep,
        commits_checked=structure.log.commits,
        checkpoints_checked=structure.log.checkpoints,
        files_checked=structure.files,
        proofs=checks,
        proof_outcome=proof_outcome,
        algorithm=ALGORITHM,
        engine=ENGINE,
        duration_ms=call.watch.total_milliseconds(),
    )


def _check_proofs(call: Call, log: LogCheck, request: VerifyRequest) -> tuple[ProofCheck, ...]:
    if not request.proofs or log.readable_version != log.version or log.version is None:
        return ()
    versions = [request.version]
    if request.version is None:
        versions = [*_proved_versions(call.table, every=request.every)]
    reading = _Reading(call)
    return tuple(_check(reading, number) for number in versions if number is not None)


def _proved_versions(table: FormatTable, *, every: bool) -> list[int]:
    """Return the versions with a proof, newest first; only the latest unless all are requested."""
    for limit in (None,) if every else (_NEWEST_COMMITS, None):
        try:
            proved = [entry.version for entry in table.history(limit=limit) if entry.proof]
        except errors.CorruptLogError:
            # A commit that no reader needs, because of a later checkpoint: a finding.
            return []
        if proved:
            return proved if every else proved[:1]
    return []


def _total_outcome(checks: Sequence[ProofCheck]) -> Agreement:
    found = {check.outcome for check in checks}
    if "differs" in found:
        return "differs"
    return "equal" if "equal" in found else "cannot_compare"


def _check(reading: _Reading, version: int) -> ProofCheck:
    table = require_support(reading.call.table, SupportsVerification, operation="verify")
    commit = table.proved_commit(version)
    blank = ProofCheck(version=version, outcome="cannot_compare", message="", proof=commit.proof)
    if commit.proof is None:
        return replace(blank, reason="no_proof", message="the commit has no proof")
    if not is_readable(commit.proof):
        return replace(blank, reason="unreadable_proof", message="the proof is invalid")
    try:
        read_value(Proof, commit.proof)
    except DocumentError as error:
        message = f"the proof in the commit cannot be read: {error}"
        return replace(blank, reason="not_recorded", message=message)
    try:
        worker = table.worker_at(version)
    except errors.VersionNotFoundError as error:
        return replace(blank, reason="log_gone", message=error.message)
    if commit.proof.get("positions_digest") is not None:
        return check_positions_again(
            blank,
            commit,
            worker,
            table=table,
            limits=reading.call.limits,
            digest=lambda files: reading.digest(files, worker),
        )
    inputs, outputs = reading.both_sides(commit, worker)
    return _judge(
        blank, _with_gone(inputs, table, commit.inputs), _with_gone(outputs, table, commit.outputs)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestTask:
    """A function from files to the digest of their rows, as JSON. Picklable."""

    worker: FormatWorker
    limits: TaskLimits

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        try:
            return asdict(self._digest(files, "duckdb"))
        except NotDecodable:
            return asdict(self._digest(files, "arrow"))

    def _digest(self, files: Sequence[DataFile], decoder: Decoder) -> Digest:
        limits = replace(self.limits, threads=granted_cores())
        with Digester(self.worker.moved_rows) as digester:
            self.worker.digest_rows(files, digester, limits=limits, decoder=decoder)
            return digester.result()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    """One side of a comparison: its rows, or why they cannot be read."""

    files: int
    digest: Digest | None = None
    failure: errors.LakehandError | None = None

    @property
    def seen(self) -> RowsSeen | None:
        if self.digest is None:
            return None
        text = digest_hex(self.digest)
        return RowsSeen(files=self.files, rows=self.digest.rows, digest=text)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads files in tasks."""

    call: Call

    def digest(
        self, files: Sequence[DataFile], worker: FormatWorker
    ) -> tuple[Digest | None, errors.LakehandError | None]:
        """Return the digest of the rows of files, or why they cannot be read."""
        side = _side(self._run(divide_files(files), worker), len(files))
        return side.digest, side.failure

    def both_sides(self, commit: ProvedCommit, worker: FormatWorker) -> tuple[_Side, _Side]:
        """Return the rows that a commit replaced, and those that replaced them."""
        inputs, outputs = divide_files(commit.inputs), divide_files(commit.outputs)
        outcomes = self._run(inputs + outputs, worker)
        before, after = outcomes[: len(inputs)], outcomes[len(inputs) :]
        return _side(before, len(commit.inputs)), _side(after, len(commit.outputs))

    def _run(
        self, divided: Sequence[Sequence[DataFile]], worker: FormatWorker
    ) -> Sequence[TaskOutcome]:
        task = DigestTask(worker=worker, limits=self.call.limits)
        read_bytes = sum(file.bytes for portion in divided for file in portion)
        with open_tasks(self.call, read_bytes=read_bytes) as tasks:
            return tasks.over_files("verify", task, divided)


def _side(outcomes: Sequence[TaskOutcome], files: int) -> _Side:
    """Sum the results of tasks; an error that does not concern files is raised."""
    failures = [errors.error_from_json(o.failure) for o in outcomes if o.failure is not None]
    for error in failures:
        if not isinstance(error, (errors.ObjectNotFoundError, *_UNREADABLE)):
            raise error
    if failures:
        return _Side(files=files, failure=failures[0])
    digests = [Digest.from_json(o.result) for o in outcomes if o.result is not None]
    # A commit may leave no file, if all rows were deleted.
    nothing = Digest(rows=0, lanes=(0, 0), algorithm=ALGORITHM, engine=ENGINE)
    return _Side(files=files, digest=total_digest(digests) or nothing)


def _with_gone(side: _Side, table: FormatTable, files: Sequence[DataFile]) -> _Side:
    """Distinguish missing from corrupt files: vacuum also deletes deletion vectors.

    A reader of the latest version cannot continue in either case, so reading raises one error for
    both.
    """
    error = side.failure
    path = getattr(error, "path", None)
    if not isinstance(error, _UNREADABLE) or path not in table.missing_files(files):
        return side
    gone = errors.ObjectNotFoundError(error.message, path=path, operation="verify", hint=error.hint)
    return replace(side, failure=gone)


def _judge(blank: ProofCheck, inputs: _Side, outputs: _Side) -> ProofCheck:
    """Return whether rows are equal; `differs` only if the data that was read shows it."""
    check = replace(
        blank,
        inputs=inputs.seen,
        outputs=outputs.seen,
        matches_record=_matches_record(blank.proof or {}, outputs.digest),
    )
    outcome, reason, message = next(_verify_verdicts(check, inputs, outputs))
    return replace(check, outcome=outcome, reason=reason, message=message)


def _verify_verdicts(
    check: ProofCheck, inputs: _Side, outputs: _Side
) -> Iterator[tuple[Agreement, str | None, str]]:
    """Yield the verdicts that apply, the most specific first."""
    if isinstance(outputs.failure, _UNREADABLE):
        yield "differs", "unreadable_output", outputs.failure.message
    if outputs.failure is not None:
        yield "cannot_compare", "outputs_gone", outputs.failure.message
    expected = _expected(check.proof or {}, inputs.digest)
    if expected is not None and expected != outputs.digest:
        yield "differs", "rows", f"{_describe(check.inputs)} became {_describe(check.outputs)}"
    if check.matches_record is False:
        yield "differs", "record", f"the proof does not match the {_describe(check.outputs)}"
    if isinstance(inputs.failure, _UNREADABLE):
        yield "cannot_compare", "unreadable_input", inputs.failure.message
    if inputs.failure is not None:
        yield "cannot_compare", "inputs_gone", inputs.failure.message
    if expected is None and not check.matches_record:
        yield "cannot_compare", "not_recorded", "the commit has no digest of the rows"
    record = (
        ""
        if check.matches_record
        else "; the digest in the commit is from another engine, or of another kind"
    )
    yield "equal", None, f"{_describe(check.outputs)}, as before{record}"


def _describe(seen: RowsSeen | None) -> str:
    return "nothing" if seen is None else f"{seen.rows:,} rows with the digest {seen.digest}"


def _expected(proof: Mapping[str, Any], before: Digest | None) -> Digest | None:
    """Return the rows that were expected to remain of those before; None if not known."""
    gone, came = proof.get("removed_rows"), proof.get("added_rows")
    if before is None or not (gone or came):
        return before
    recorded = (proof.get("algorithm"), proof.get("engine"))
    lacks = (gone and not proof.get("removed_digest")) or (came and not proof.get("added_digest"))
    if recorded != (before.algorithm, before.engine) or lacks:
        return None
    left = without_rows(before, rows=gone, digest=proof["removed_digest"]) if gone else before
    return with_rows(left, rows=came, digest=proof["added_digest"]) if came else left


def _matches_record(proof: Mapping[str, Any], found: Digest | None) -> bool | None:
    """Compare with the digest in the commit; None if it has none of rows, or from another engine.

    Row counts are comparable with any engine, but equal counts prove nothing.
    """
    if found is None:
        return None
    if proof.get("rows") != found.rows:
        return False
    recorded = (proof.get("kind"), proof.get("algorithm"), proof.get("engine"))
    if recorded != ("digest", found.algorithm, found.engine) or not proof.get("digest"):
        return None
    return bool(proof["digest"] == digest_hex(found))
