"""The plan of a compaction: a plain value that can be printed, stored, sent and carried out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import ReplanError
from lakehand.planning.forecast import Forecast
from lakehand.planning.policy import CompactionPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.model.work import Method
    from lakehand.planning.surveyed import Integers

__all__ = ["Plan", "PlannedGroup", "Remaining", "locate_inputs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedGroup:
    """Files of one partition that become new files together, in one task."""

    id: int
    #: Paths of the inputs, as the table of files spells them.
    paths: tuple[str, ...]
    input_bytes: int
    #: Why these files; shown to users.
    reason: str
    method: Method
    #: Why this method; shown to users.
    method_reason: str
    #: Numbers of the paths that a copy has to recode first.
    recoded: tuple[int, ...] = ()
    #: Size that each output aims for: even, where the rows go into several files.
    target_file_bytes: int
    #: Files and bytes that are expected to come out.
    expected_files: int
    expected_bytes: int
    #: Estimated processor time.
    task_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Remaining:
    """What is worth rewriting, but left for a later run by the caps of this one."""

    groups: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is to be rewritten, largest group first, and why the rest is not."""

    #: URL of the table, without credentials.
    table: str
    #: Version that the plan was made from.
    version: int
    #: The settings in force.
    policy: CompactionPolicy
    groups: tuple[PlannedGroup, ...]
    #: Number of files to be rewritten, by reason.
    chosen: Mapping[str, int] = field(default_factory=dict)
    #: Number of files left alone, by reason.
    left: Mapping[str, int] = field(default_factory=dict)
    remaining: Remaining = Remaining()
    forecast: Forecast
    operation: str = "compact"
    #: The condition on the files that were looked at, as SQL; null: all of them.
    where: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as one JSON document."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        groups = (
            PlannedGroup(**{**g, "paths": tuple(g["paths"]), "recoded": tuple(g["recoded"])})
            for g in value["groups"]
        )
        return cls(
            **{
                **value,
                "policy": CompactionPolicy.from_json(value["policy"]),
                "groups": tuple(groups),
                "remaining": Remaining(**value["remaining"]),
                "forecast": Forecast.from_json(value["forecast"]),
            }
        )


def locate_inputs(plan: Plan, files: pa.Table) -> list[Integers]:
    """Return the rows of `files` that each group rewrites.

    ReplanError if a file of the plan is not among them.
    """
    paths = pa.array([path for group in plan.groups for path in group.paths], pa.string())
    rows = pc.index_in(paths, files["path"].combine_chunks())
    if rows.null_count:
        lost = paths.filter(rows.is_null())[0].as_py()
        raise ReplanError(
            f"the plan for version {plan.version} of {plan.table} names {lost}, "
            "which the table does not hold",
            table=plan.table,
            expected_version=plan.version,
            hint="plan again",
        )
    ends = np.cumsum([len(group.paths) for group in plan.groups])
    return np.split(rows.to_numpy().astype(np.int64), ends[:-1]) if plan.groups else []
