"""The plan of a rewrite, and its forecast: plain values to print, store, send and execute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ReplanError, ValidationError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.notebook_view import NotebookView
from lakehand.model.reports import Forecast, Measured, Remaining
from lakehand.planning.policy import CompactionPolicy  # noqa: TC001  read_value needs it

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lakehand.model.order import Curve
    from lakehand.model.work import Method
    from lakehand.planning.footer_survey import Integers, Rows

_MIB = 2**20
#: Row groups copied byte for byte, with checksums at both ends.
COPY_BYTES_PER_SECOND = 500 * _MIB
#: Rows decoded and digested ...
RECODE_READ_BYTES_PER_SECOND = 40 * _MIB
#: ... and encoded, then read back and digested again.
RECODE_WRITE_BYTES_PER_SECOND = 32 * _MIB
#: Opening an input: its footer and schema.
SECONDS_PER_FILE = 0.003
#: Starting a task and finishing its files.
SECONDS_PER_GROUP = 0.1

#: Fraction of the bytes that remains if row groups below this size are merged: dictionaries and
#: headers are not repeated.
_TIGHT_ROW_GROUP_BYTES = 4 * _MIB
_RECODED_SHARE = 0.87


def recoded_bytes(
    live_bytes: Integers, row_group_bytes: NDArray[np.float64], policy: CompactionPolicy
) -> Integers:
    """Return the size of rows after a rewrite; `row_group_bytes` is the size of one row group.

    Row groups of the size that a writer would give them keep their size.
    """
    limit = min(_TIGHT_ROW_GROUP_BYTES, policy.smallest_written_row_group_bytes)
    share = np.where(row_group_bytes < limit, _RECODED_SHARE, 1.0)
    return np.ceil(live_bytes * share).astype(np.int64)


def expected_file_counts(expected_bytes: Integers, policy: CompactionPolicy) -> Integers:
    """Return how many files each group becomes: of even size near the target, none small.

    >>> from lakehand.planning.policy import CompactionPolicy
    >>> policy = CompactionPolicy(target_file_bytes=100)
    >>> expected_file_counts(np.array([0, 60, 140, 160, 1040]), policy)
    array([ 0,  1,  1,  2, 10])
    """
    nearest = np.floor(expected_bytes / policy.target_file_bytes + 0.5).astype(np.int64)
    counts = np.maximum(nearest, 1)
    are_small = expected_bytes / counts < policy.small_file_bytes
    counts -= are_small & (counts > 1)
    return np.where(expected_bytes > 0, counts, 0)


def task_seconds(
    *,
    copied_bytes: Integers,
    recoded_bytes: Integers,
    encoded_bytes: Integers,
    file_counts: Integers,
) -> NDArray[np.float64]:
    """Estimate the processor time of each group: to copy, decode, encode and open files."""
    seconds = (
        SECONDS_PER_GROUP
        + SECONDS_PER_FILE * file_counts
        + copied_bytes / COPY_BYTES_PER_SECOND
        + recoded_bytes / RECODE_READ_BYTES_PER_SECOND
        + encoded_bytes / RECODE_WRITE_BYTES_PER_SECOND
    )
    return seconds.astype(np.float64)


#: Version of the document's form. A plan of another form is rejected.
PLAN_FORM = 1


class TablePaths(Sequence[str]):
    """Paths of files of a table, which become strings only when they are needed.

    A plan may have millions of them. Equal to every sequence of the same strings.
    """

    __slots__ = ("_column", "positions")

    def __init__(self, column: pa.Array, positions: Rows) -> None:
        self._column = column
        #: Rows of the table of files.
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.positions[index]
        if isinstance(index, slice):
            return tuple(TablePaths(self._column, chosen))
        return self._column[int(chosen)].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.take(pa.array(self.positions)).to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)

    def are_of(self, column: pa.ChunkedArray) -> bool:
        """Return whether these are rows of this very column, without a look at its values."""
        if column.num_chunks != 1:
            return False
        # Addresses are not used again, because this keeps the memory. Slices share them.
        own, other = (
            (len(one), one.offset, [buffer.address for buffer in one.buffers() if buffer])
            for one in (self._column, column.chunk(0))
        )
        return own == other


def one_array(paths: pa.ChunkedArray) -> pa.Array:
    """Return all paths as one array; strings of more than 2 GiB have other offsets."""
    if paths.num_chunks == 1:
        return paths.chunk(0)
    return paths.cast(pa.large_string()).combine_chunks()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedGroup:
    """Files of one partition that are rewritten together, in one task."""

    #: Number of the group; the largest group is 0.
    id: int
    #: The partition of the files, as `column=value`; empty if the table has none.
    partition: str = ""
    #: The files, by their paths in the table.
    paths: Sequence[str]
    #: Total size of these files.
    input_bytes: int
    #: Why these files were selected.
    reason: str
    #: How they are rewritten: `copy` copies row groups byte for byte, `recode` decodes and encodes
    #: rows again.
    method: Method
    #: Why this method.
    method_reason: str
    #: Indexes of the paths that a copy has to re-encode first.
    recoded: tuple[int, ...] = ()
    #: Target size of each output: even, if there are several.
    target_file_bytes: int
    #: Expected number of output files.
    expected_files: int
    #: Expected total size of the outputs.
    expected_bytes: int
    #: Estimated CPU time.
    task_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutForecast:
    """Expected effect of clustering on queries: `after` was measured on a sample of rows."""

    #: Fraction of files that queries can skip.
    skip_rate: Measured
    #: Average number of files that overlap at the middle of a file, including itself.
    overlap_depth: Measured
    #: Rows in the sample.
    sampled_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(NotebookView):
    """What is to be rewritten, largest group first, and why the rest is not."""

    #: Version of this document's form.
    form: int = PLAN_FORM
    #: The operation that executes it.
    operation: str = "compact"
    #: URL of the table, without credentials.
    table: str
    #: Distinguishes the table from one created later at the same location; null if not possible.
    table_id: str | None = None
    #: Version that the plan is based on.
    version: int
    #: The predicate on files, as SQL; null: all files.
    where: str | None = None
    #: Columns to sort or cluster by; empty: none.
    order: tuple[str, ...] = ()
    #: Space-filling curve; null: rows keep their order.
    curve: Curve | None = None
    #: The settings of the plan.
    policy: CompactionPolicy
    #: Number of files to be rewritten, by reason.
    chosen: Mapping[str, int] = field(default_factory=dict)
    #: Number of files not to be rewritten, by reason.
    left: Mapping[str, int] = field(default_factory=dict)
    #: Running operations that are rewriting files of the table; those files are skipped.
    left_to_runs: tuple[str, ...] = ()
    #: What is left for a later run because of the limits of this one.
    remaining: Remaining = field(default_factory=Remaining)
    #: Expected result of the run.
    forecast: Forecast
    #: Expected effect on queries; null unless rows are clustered.
    layout: LayoutForecast | None = None
    #: The groups of files to rewrite.
    groups: tuple[PlannedGroup, ...]

    @property
    def paths(self) -> list[str]:
        """The files that are to be rewritten."""
        return [path for group in self.groups for path in group.paths]

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand plan --json` prints, and `compact --plan` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the document; ValidationError if it is not a plan."""
        if value.get("form") != PLAN_FORM:
            raise _not_a_plan(f"its form is not {PLAN_FORM}")
        try:
            plan = read_value(cls, value)
        except DocumentError as error:
            raise _not_a_plan(str(error)) from error
        plan.check()
        return plan

    def check(self) -> None:
        """Raise ValidationError if the groups of a plan contradict each other."""
        paths = [path for group in self.groups for path in group.paths]
        if len(set(paths)) < len(paths):
            raise _not_a_plan("it contains a file twice")
        for group in self.groups:
            numbers = range(len(group.paths))
            if not group.paths or any(number not in numbers for number in group.recoded):
                raise _not_a_plan(f"group {group.id} has no such files")
            if group.target_file_bytes <= 0:
                raise _not_a_plan(f"group {group.id} has a target size of zero")

    def to_text(self) -> str:
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """Read what `to_text` wrote; ValidationError if it is not a plan."""
        try:
            value = parse_object(text)
        except DocumentError as error:
            raise _not_a_plan(str(error)) from error
        return cls.from_json(value)


def _not_a_plan(reason: str) -> ValidationError:
    return ValidationError(
        f"not a plan that this version of lakehand can execute: {reason}",
        field="plan",
        hint="create one with `lakehand plan TABLE --output FILE`",
    )


def format_partition(values: Mapping[str, Any]) -> str:
    """Format the partition of a file.

    >>> format_partition({"region": "eu", "day": None})
    'region=eu, day=null'
    """
    return ", ".join(f"{k}={'null' if v is None else v}" for k, v in values.items())


def locate_inputs(plan: Plan, files: pa.Table) -> list[Rows]:
    """Return the rows of `files` that each group rewrites.

    Raises ReplanError if a file of the plan is not among them.
    """
    column, inputs = files["path"], [group.paths for group in plan.groups]
    known = [one.positions for one in inputs if isinstance(one, TablePaths) and one.are_of(column)]
    if len(known) == len(inputs):
        return known
    known_paths = one_array(column)
    paths = pa.array([path for group in plan.groups for path in group.paths], known_paths.type)
    rows = pc.index_in(paths, known_paths)
    if rows.null_count:
        lost = paths.filter(rows.is_null())[0].as_py()
        raise ReplanError(
            f"the plan for version {plan.version} of {plan.table} contains {lost}, "
            "which is not in the table",
            table=plan.table,
            expected_version=plan.version,
            hint="plan again",
        )
    ends = np.cumsum([len(group.paths) for group in plan.groups])
    return np.split(rows.to_numpy().astype(np.int32), ends[:-1]) if plan.groups else []
