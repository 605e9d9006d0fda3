"""What is worth rewriting, and how much of it at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.settings import Settings

__all__ = ["CompactionPolicy", "Strategy"]

Strategy = Literal["greedy", "bin-packing", "sort-by-size"]

#: Files may come out this much below their forecast. What is near a limit counts as below it, so
#: that a second run finds nothing to do.
_SHRINKAGE = 0.09

#: Row groups below both limits cost more to find than to read.
_CRUMB_BYTES = 2**20
CRUMB_ROWS = 20_000
#: Row groups of a rewritten file are at least this part of the target, its last one apart.
_ROW_GROUPS_PER_TARGET = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionPolicy:
    """The settings that decide over a plan. Fields have the names of the settings."""

    #: Size that new files aim for.
    target_file_bytes: int
    #: A file is small below this part of the target.
    small_file_ratio: float = 0.5
    #: A file is worn when more than this part of its rows is deleted.
    deleted_row_ratio: float = 0.05
    #: A file is oversized above this many times the target.
    oversized_file_ratio: float = 10.0
    #: Fewer small files than this in a partition are left alone; other reasons know no minimum.
    min_files: int = 4
    #: How files were put together: in a clustered table always `greedy`, in its order.
    strategy: Strategy = "greedy"
    #: Caps of the run; null: none. Likewise the next two.
    max_bytes_per_run: int | None = None
    #: Cap on files.
    max_files_per_run: int | None = None
    #: Cap on groups.
    max_groups_per_run: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, *, automatic: bool = False) -> Self:
        """Take the policy from settings; a run that nobody asked for waits for more files."""
        values = {field.name: settings[field.name] for field in fields(cls)}
        if automatic and settings.sources["min_files"] == "default":
            values["min_files"] = settings["automatic_min_files"]
        return cls(**values)

    @property
    def small_file_bytes(self) -> float:
        return self.target_file_bytes * self.small_file_ratio

    @property
    def nearly_small_bytes(self) -> float:
        """Below this a rewritten file may turn out to be small."""
        return self.small_file_bytes / (1 - _SHRINKAGE)

    @property
    def fullest_group_bytes(self) -> int:
        """Up to this a group may be filled rather than leave a small file behind."""
        return int(self.target_file_bytes / (1 - _SHRINKAGE))

    @property
    def oversized_file_bytes(self) -> float:
        return self.target_file_bytes * self.oversized_file_ratio

    @property
    def smallest_written_row_group_bytes(self) -> float:
        """No rewrite makes row groups below this, so none is made for the sake of larger ones."""
        return self.target_file_bytes / _ROW_GROUPS_PER_TARGET

    @property
    def crumb_bytes(self) -> float:
        """A row group below this, and below `CRUMB_ROWS`, is a crumb."""
        return min(_CRUMB_BYTES, self.smallest_written_row_group_bytes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)
