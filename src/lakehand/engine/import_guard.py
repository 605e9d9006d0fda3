"""What keeps processes that are all our own from loading what they have no use for."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas where no objects of pandas are passed to it.

    It would do so for the first list that becomes an array, only to tell such objects from others,
    and that takes 0.3 s. Later conversions to pandas still work. Arrow itself is
    not imported here: there are tasks that do without.
    """
    if "pyarrow" in sys.modules:
        _make_arrow_try()
    else:
        sys.meta_path.insert(0, _BeforeArrow())


def _make_arrow_try() -> None:
    """Let Arrow look for pandas while there is none: it tries once."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


class _BeforeArrow(MetaPathFinder):
    """Waits for the import of Arrow."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  asked for by the import system
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if name != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ArrowLoader(spec.loader)
        return spec


class _ArrowLoader(Loader):
    """Loads Arrow as ever, and then lets it look for pandas in vain."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _make_arrow_try()


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
