"""Files in a dataset's root that its branches need: all of their versions count.

A branch has manifests and new files of its own below `tree/`, which vacuum never looks at, and
shares the files of the version that it began with.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.errors import RefusedError
from lakehand.formats.lance.connect import address, open_dataset, translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.storage import Store

__all__ = ["branch_points", "branches", "shared_with_branches"]

_SCHEME = re.compile(r"^[a-z0-9+]+://")
_TREE = "tree/"


def branches(store: Store) -> dict[str, int | None]:
    """Return the version of the main branch that each branch began with; None: of another one."""
    found = open_dataset(store).branches.list().items()
    return {
        name: branch["parent_version"] if branch["parent_branch"] is None else None
        for name, branch in found
    }


def branch_points(store: Store) -> set[int]:
    """Return the versions of the main branch that branches began with."""
    return {version for version in branches(store).values() if version is not None}


def shared_with_branches(store: Store) -> pa.Table:
    """Return the files in the root that versions of branches name, as `tracked_files` tells them.

    RefusedError if a branch names files that are neither there nor of a branch.
    """
    main = open_dataset(store)
    with translated(store, "to read the branches"):
        parts = list(_shared(store, main))
    return pa.concat_tables(parts) if parts else main.tracked_files().read_all().slice(0, 0)


def _shared(store: Store, main: Any) -> Iterator[pa.Table]:
    root = _plain(address(store))
    for name in main.branches.list():
        named = main.checkout_version((name, None)).tracked_files().read_all()
        bases = named["base_uri"].cast(pa.string())
        known = pc.unique(bases).to_pylist()
        strange = [base for base in known if not _is_within(_plain(base), root)]
        if strange:
            raise RefusedError(
                f"vacuum is refused on {store.url}: its branch {name!r} names files outside of its"
                " root, which cannot be told from its own",
                table=store.url,
                operation="vacuum",
                feature="branches",
                hint="nothing was deleted; delete the branch if nobody needs it",
            )
        own = pa.array([base for base in known if _plain(base) == root], pa.string())
        yield named.filter(pc.is_in(bases, value_set=own))


def _is_within(base: str, root: str) -> bool:
    return base == root or base.startswith(f"{root}/{_TREE}")


def _plain(base: str) -> str:
    return _SCHEME.sub("", base).strip("/")
