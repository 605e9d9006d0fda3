"""Lance tables of small fragments, and what their readers find in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance.arrow import bfloat16_array

import lakehand
from support.compactions import tasks_inline

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.model.reports import OperationReport

FRAGMENTS, ROWS = 8, 64
DIMENSIONS = 8
QUERY = np.random.default_rng(7).random(DIMENSIONS, dtype=np.float32)


def some_rows(start: int, count: int = ROWS) -> pa.Table:
    """Return rows whose values follow from their numbers."""
    numbers = np.arange(start, start + count)
    vectors = np.random.default_rng(start).random(count * DIMENSIONS, dtype=np.float32)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "word": pa.array([f"word{number % 7} common" for number in numbers.tolist()]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSIONS),
        }
    )


def rows_of_every_kind() -> pa.Table:
    """Return four rows of types that are easily confused or cut off."""
    halves = pa.array([1.5, -0.0, float("inf"), None], pa.float16())
    columns = {
        "half": halves,
        "halves": pa.FixedSizeListArray.from_arrays(pa.array([0.5] * 8).cast(pa.float16()), 2),
        "word": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "instant": pa.array([1, 2, None, -3], pa.timestamp("ns", tz="UTC")),
        "time": pa.array([1, 2, 3, None], pa.time64("ns")),
        "length": pa.array([1, None, 2, 3], pa.duration("ns")),
        "nested": pa.array([{"a": [1, None]}, {"a": []}, {"a": None}, None]),
        "lists": pa.array([[[1], []], [], None, [None]]),
        "vector": pa.array([[1.0, None], None, [0.0, -0.0], [2, 3]], pa.list_(pa.float32(), 2)),
        "bytes": pa.array([b"\x00", b"", None, b"x"]),
        "large": pa.array(["x", None, "", "y"], pa.large_string()),
        "flag": pa.array([True, None, False, True]),
        "amount": pa.array([1, 2, None, 3]).cast(pa.decimal128(30, 3)),
        "brief": bfloat16_array([1.5, -0.0, None, 3.0]),
    }
    return pa.table(columns)


def make_lance(
    path: Path, *, fragments: int = FRAGMENTS, stable_row_ids: bool = False, **options: Any
) -> str:
    """Write a table of small fragments, one version each, and return where it is."""
    for number in range(fragments):
        lance.write_dataset(
            some_rows(number * ROWS),
            str(path),
            mode="append" if number else "create",
            enable_stable_row_ids=stable_row_ids,
            **options,
        )
    return str(path)


def add_indices(path: str) -> None:
    """Build a scalar, a full-text and a vector index."""
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "INVERTED")
    dataset.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=4, num_bits=4)


def rows_of(path: str) -> pa.Table:
    """Return all rows as Lance reads them, in the order of their ids."""
    return lance.dataset(path).to_table().sort_by("id").combine_chunks()


def searches(path: str) -> dict[str, Any]:
    """Return what searches through every index find; of vectors, how far away, too.

    Scores of words are left out: Lance weighs words by the rows that are in the index, and deleted
    ones leave it when fragments are rewritten.
    """
    dataset = lance.dataset(path)
    # Vectors of one code are equally far until they are looked at themselves.
    query = {"column": "vector", "q": QUERY, "k": 10, "nprobes": 2, "refine_factor": 20}
    near = dataset.to_table(columns=["id", "_distance"], nearest=query)
    words = dataset.to_table(columns=["id", "_score"], full_text_query="word3").select(["id"])
    return {
        "scalar": dataset.to_table(filter="id IN (3, 70, 200)").sort_by("id").to_pydict(),
        "nearest": near.to_pydict(),
        "words": words.sort_by("id").to_pydict(),
    }


def fragment_count(path: str) -> int:
    return len(lance.dataset(path).get_fragments())


def compact_lance(path: str, takeover_after: str = "2m", **settings: Any) -> OperationReport:
    """Compact with all tasks in this process."""
    with tasks_inline():
        return lakehand.open_table(path, takeover_after=takeover_after, **settings).compact()


def compact_in_halves(path: str, takeover_after: str = "2m", **settings: Any) -> OperationReport:
    """Compact into two fragments, each by a group of its own."""
    half = sum(size for _, size in data_sizes(path)) // 2
    return compact_lance(path, takeover_after, target_file_bytes=half, **settings)


def data_sizes(path: str) -> list[tuple[str, int]]:
    """Return the data files of the newest version, with their sizes."""
    fragments = (fragment.metadata for fragment in lance.dataset(path).get_fragments())
    files = [file for fragment in fragments for file in fragment.files]
    return [(f"data/{file.path}", file.file_size_bytes) for file in files]


def unknown_files(path: str) -> set[str]:
    """Return the data files that no version refers to."""
    dataset = lance.dataset(path)
    tracked = dataset.tracked_files().read_all()["path"].to_pylist()
    stored = dataset.all_files().read_all()["path"].to_pylist()
    return {key for key in stored if key.startswith("data/")} - set(tracked)
