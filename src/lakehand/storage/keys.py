"""Keys: where an object lies below the root of its store, decoded and taken literally."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehand.errors import UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_key", "check_keys", "check_prefix", "is_safe_key", "join_key"]

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
    reason = _why_refused(key)
    if reason is not None:
        raise UnsafePathError(
            f"the path {key!r} is refused: {reason}",
            path=key,
            hint="paths are relative to the root of the table and stay below it",
        )
    return key


def is_safe_key(key: str) -> bool:
    """Say whether `check_key` takes `key`."""
    return _why_refused(key) is None


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


def _why_refused(key: str) -> str | None:
    reason = _danger(key)
    return _danger_when_decoded(key) if reason is None and "%" in key else reason


def _danger(key: str) -> str | None:
    if "\0" in key:
        return "it holds a NUL byte"
    if key.startswith("/"):
        return "it is absolute"
    if _BAD_SEGMENT.search(key):
        return "it holds an empty segment, '.' or '..'"
    return None


def _danger_when_decoded(key: str) -> str | None:
    """Say why `key` could leave a directory once some party decodes it.

    Each segment is looked at by itself: one that decodes to a path may go up in it, as
    `p=a%2F..` does, but never above the directory that the segment is in.
    """
    for segment in key.split("/"):
        before, decoded = segment, unquote(segment)
        while decoded != before:
            if "\0" in decoded:
                return "it holds an encoded NUL byte"
            if _climbs(re.split(r"[/\\]", decoded)):
                return "it holds an encoded '.' or '..'"
            before, decoded = decoded, unquote(decoded)
    return None


def _climbs(parts: list[str]) -> bool:
    depth = 0
    for part in parts:
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return True
    return parts[0] in {".", ".."}
