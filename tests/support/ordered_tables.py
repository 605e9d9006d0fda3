"""Tables whose files lie in known places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["table_of_files"]


def table_of_files(path: Path, *files: pa.Table | dict[str, Sequence[Any]]) -> Path:
    """Write a table with exactly these files, one commit each."""
    for content in files:
        rows = content if isinstance(content, pa.Table) else pa.table(content)
        write_deltalake(str(path), rows, mode="append")
    return path
