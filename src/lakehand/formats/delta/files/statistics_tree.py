"""The JSON of `add.stats` as a tree whose leaves are JSON texts.

A decimal must not pass through a float, so numbers are texts from where they are read or computed
to where they are printed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.formats.delta.protocol.schema import Leaf

__all__ = ["Tree", "put", "string_text", "tree_text"]

#: Nested objects; their values are trees or JSON texts.
Tree = dict[str, Any]


def put(tree: Tree, leaf: Leaf, text: str | None) -> None:
    """Put a JSON text at the place of a leaf; None puts nothing."""
    if text is None:
        return
    for name in leaf.physical_path[:-1]:
        tree = tree.setdefault(name, {})
    tree[leaf.physical_path[-1]] = text


def tree_text(tree: Tree | str) -> str:
    """Print a tree as JSON."""
    if isinstance(tree, str):
        return tree
    members = [f"{string_text(name)}:{tree_text(value)}" for name, value in tree.items()]
    return "{" + ",".join(members) + "}"


def string_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
