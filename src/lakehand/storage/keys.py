"""Keys: where an object lies below the root of its store, decoded and taken literally."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehand.errors import UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_key", "check_keys", "check_prefix", "join_key"]

# An empty segment, '.' or '..'; a leading or trailing slash makes an empty segment.
_BAD_SEGMENT = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
#: The same in a text of one key a line, or anything else that takes a closer look.
_SUSPICIOUS = re.compile(rf"(?m:{_BAD_SEGMENT.pattern})|[%\0]")


def check_key(key: str) -> str:
    """Return `key` if it names an object below the root; raise UnsafePathError otherwise.

    A key is literal: a '%' in it is part of the name. Still, a key that would leave the root once
    some other party decodes it, however often, is refused.

    >>> check_key("day=1/a%20b.parquet")
    'day=1/a%20b.parquet'
    """
    reason = _danger(key)
    if reason is None and "%" in key:
        reason = _danger_when_decoded(key)
    if reason is not None:
        raise UnsafePathError(
            f"the path {key!r} is refused: {reason}",
            path=key,
            hint="paths are relative to the root of the table and stay below it",
        )
    return key


def check_keys(keys: Iterable[str]) -> list[str]:
    """Return `keys` if each of them may be used; as `check_key` does, but fast for many."""
    found = list(keys)
    if found and _SUSPICIOUS.search("\n".join(found)):
        return [check_key(key) for key in found]
    return found


def check_prefix(prefix: str) -> str:
    """Return `prefix`, the key of a directory, without a trailing slash; '' is the root."""
    trimmed = prefix.removesuffix("/")
    return check_key(trimmed) if trimmed else ""


def join_key(directory: str, name: str) -> str:
    """Return the key of `name` in `directory`."""
    return f"{directory}/{name}" if directory else name


def _danger(key: str) -> str | None:
    if "\0" in key:
        return "it holds a NUL byte"
    if key.startswith("/"):
        return "it is absolute"
    if _BAD_SEGMENT.search(key):
        return "it holds an empty segment, '.' or '..'"
    return None


def _danger_when_decoded(key: str) -> str | None:
    decoded = unquote(key)
    while decoded != key:
        key, decoded = decoded, unquote(decoded)
        if "\0" in key:
            return "it holds an encoded NUL byte"
        if any(segment in {".", ".."} for segment in re.split(r"[/\\]", key)):
            return "it holds an encoded '.' or '..'"
    return None
