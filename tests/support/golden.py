"""Golden tables: written by many versions of Delta, with what the reference implementation says."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.storage import Store, open_store

if TYPE_CHECKING:
    from lakehand.model.snapshot import Snapshot

_REPOSITORY = Path(__file__).parents[2]
GOLDEN = Path(os.environ.get("LAKEHAND_GOLDEN", _REPOSITORY.parent / "shared" / "golden"))
ABSENT_REASON = f"no golden tables at {GOLDEN}; set LAKEHAND_GOLDEN to the folder that holds them"


@dataclass(frozen=True, kw_only=True, slots=True)
class Golden:
    """One table, opened."""

    store: Store
    snapshot: Snapshot


def golden_names() -> list[str]:
    """Return the names of all tables; none where the folder is absent."""
    return sorted(path.stem.replace("__", "/") for path in (GOLDEN / "expected").glob("*.json"))


def expected_of(name: str) -> dict[str, Any]:
    """Return what the reference implementation says of a table."""
    path = GOLDEN / "expected" / f"{name.replace('/', '__')}.json"
    return json.loads(path.read_text("utf-8"))


def golden_store(name: str) -> Store:
    return open_store(GOLDEN / "tables" / name)


@cache
def open_golden(name: str) -> Golden:
    """Open a table in place; typed errors pass through."""
    store = golden_store(name)
    return Golden(store=store, snapshot=load_snapshot(store))


def refused_names() -> list[str]:
    """Return the tables that the reference implementation refuses to open."""
    return [name for name in golden_names() if "detail_error" in expected_of(name)]


def opened_names() -> list[str]:
    """Return the tables that the reference implementation opens."""
    return [name for name in golden_names() if "detail_error" not in expected_of(name)]


def read_names() -> list[str]:
    """Return the tables whose rows the reference implementation reads."""
    return [name for name in golden_names() if "read_error" not in expected_of(name)]


def unread_names() -> list[str]:
    """Return the tables that the reference implementation opens, and whose rows it cannot read."""
    return [name for name in opened_names() if "read_error" in expected_of(name)]
