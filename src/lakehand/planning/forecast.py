"""What a plan will cost and leave behind, before anything is read.

The rates are those of one task with one core on local disk, in seconds of processor time, proof
included; docs/decisions/0010-planning.md tells how they were measured. They order plans and say
"minutes" or "hours"; they promise no finishing time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakehand.planning.policy import CompactionPolicy
    from lakehand.planning.surveyed import Integers

__all__ = ["expected_file_counts", "recoded_bytes", "task_seconds"]

_MIB = 2**20
#: Row groups moved byte for byte, checksums at both ends.
COPY_BYTES_PER_SECOND = 500 * _MIB
#: Rows decoded and digested on the way in ...
RECODE_READ_BYTES_PER_SECOND = 40 * _MIB
#: ... and encoded, then read back and digested again.
RECODE_WRITE_BYTES_PER_SECOND = 32 * _MIB
#: Opening an input: its footer, its schema.
SECONDS_PER_FILE = 0.003
#: Starting a task and finishing its files.
SECONDS_PER_GROUP = 0.1

#: What is left of the bytes when row groups below this size are put together: dictionaries and
#: headers are no longer repeated.
_TIGHT_ROW_GROUP_BYTES = 4 * _MIB
_RECODED_SHARE = 0.87


def recoded_bytes(
    live_bytes: Integers, row_group_bytes: NDArray[np.float64], policy: CompactionPolicy
) -> Integers:
    """Return the size that rows have after a rewrite; `row_group_bytes` is that of one row group.

    Row groups of the size that a writer would give them stay as they are.
    """
    limit = min(_TIGHT_ROW_GROUP_BYTES, policy.smallest_written_row_group_bytes)
    share = np.where(row_group_bytes < limit, _RECODED_SHARE, 1.0)
    return np.ceil(live_bytes * share).astype(np.int64)


def expected_file_counts(expected_bytes: Integers, policy: CompactionPolicy) -> Integers:
    """Return how many files each group becomes: even ones near the target, none of them small.

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
    """Estimate the processor time of each group: what it moves, decodes, encodes and opens."""
    seconds = (
        SECONDS_PER_GROUP
        + SECONDS_PER_FILE * file_counts
        + copied_bytes / COPY_BYTES_PER_SECOND
        + recoded_bytes / RECODE_READ_BYTES_PER_SECOND
        + encoded_bytes / RECODE_WRITE_BYTES_PER_SECOND
    )
    return seconds.astype(np.float64)
