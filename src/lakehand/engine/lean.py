"""What keeps processes that are all our own from loading what they have no use for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["leave_pandas_out"]


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas, where nobody hands it objects of pandas.

    It would do so for the first list that becomes an array, only to tell such objects from others,
    and that takes 0.3 s. Whoever asks Arrow for a conversion later still gets it.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        # It tries once.
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


class _Absent:
    """Says of pandas that it is not installed."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  asked for by the import system
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
        return None
