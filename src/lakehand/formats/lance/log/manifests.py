"""Names of manifests: an object a version, numbered up, or down so that the newest is first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = [
    "MANIFESTS",
    "VERSION_HINT",
    "has_detached_versions",
    "listed_versions",
    "manifest_keys",
]

MANIFESTS = "_versions"
#: Where Lance notes the newest version, to look there first.
VERSION_HINT = f"{MANIFESTS}/latest_version_hint.json"
_NAME = re.compile(rf"{MANIFESTS}/(?P<number>\d+)\.manifest")
_DETACHED = re.compile(rf"{MANIFESTS}/d\d+\.manifest")
#: Names with all digits count down from the largest number of 64 bits.
_DIGITS, _LAST = 20, 2**64 - 1


def listed_versions(store: Store) -> list[int]:
    """Return the versions that have a manifest, the newest first; nothing is opened."""
    return sorted(manifest_keys(store), reverse=True)


def manifest_keys(store: Store) -> dict[int, str]:
    """Return where the manifest of each version is."""
    names = (_NAME.fullmatch(info.key) for info in store.list(MANIFESTS))
    return {_version(found["number"]): found.string for found in names if found}


def has_detached_versions(store: Store) -> bool:
    """Say whether there are versions outside of the history, which only their makers know."""
    return any(_DETACHED.fullmatch(info.key) for info in store.list(MANIFESTS))


def _version(number: str) -> int:
    return _LAST - int(number) if len(number) == _DIGITS else int(number)
