"""A real file system with little room, and rows that fill it."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def small_disk(path: Path, size_kib: int) -> Iterator[Path]:
    """Mount a file system that holds so many KiB."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_kib}k", "lakehand-tests", str(path)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        # Only the administrator of a machine may mount one; that no setup can change.
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def grow(path: Path, size_kib: int) -> None:
    options = f"remount,size={size_kib}k"
    subprocess.run(["mount", "-o", options, str(path)], check=True)


def write_noise(place: Path | str, **options: Any) -> None:
    """Write half a megabyte that does not compress."""
    noise = np.random.default_rng(7)
    for start in range(4):
        ids = pa.array(range(start * 8_000, (start + 1) * 8_000), pa.int64())
        data = pa.table({"id": ids, "x": noise.random(8_000)})
        write_deltalake(str(place), data, mode="append", **options)
