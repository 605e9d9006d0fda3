"""Object keys: paths relative to the root of a store, decoded and literal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehand.errors import UnsafePathError

if TYPE_CHECKING:
    from collections.abc import Iterable

# An empty segment, '.' or '..'; a leading or trailing slash makes an empty segment.
_BAD_SEGMENT = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")
#: The same in a string with one key per line, or other characters that need the full check.
_SUSPICIOUS = re.compile(rf"(?m:{_BAD_SEGMENT.pattern})|[%\0]")


def check_key(key: str) -> str:
    """Return `key` if it names an object below the root; raise UnsafePathError otherwise.

    A key is literal: a '%' in it is part of the name. A key that would leave the root if it were
    percent-decoded, once or repeatedly, is rejected as well.

    >>> check_key("day=1/a%20b.parquet")
    'day=1/a%20b.parquet'
    """
    reason = _why_refused(key)
    if reason is not None:
        raise UnsafePathError(
            f"the path {key!r} is not allowed: {reason}",
            path=key,
            hint="paths must be relative to the root of the table and stay below it",
        )
    return key


def is_safe_key(key: str) -> bool:
    """Return whether `check_key` accepts `key`."""
    return _why_refused(key) is None


def check_keys(keys: Iterable[str]) -> list[str]:
    """Return `keys` if all are valid: `check_key` for many keys, but fast."""
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
    return _decoded_risk(key) if reason is None and "%" in key else reason


def _danger(key: str) -> str | None:
    if "\0" in key:
        return "it contains a NUL byte"
    if key.startswith("/"):
        return "it is absolute"
    if _BAD_SEGMENT.search(key):
        return "it contains an empty segment, '.' or '..'"
    return None


def _decoded_risk(key: str) -> str | None:
    """Return why `key` could leave its directory if it were percent-decoded.

    Each segment is checked by itself: a segment that decodes to a path may contain '..', as
    `p=a%2F..` does, but must not lead above the directory of the segment.
    """
    for segment in key.split("/"):
        before, decoded = segment, unquote(segment)
        while decoded != before:
            if "\0" in decoded:
                return "it contains an encoded NUL byte"
            if _climbs(re.split(r"[/\\]", decoded)):
                return "it contains an encoded '.' or '..'"
            before, decoded = decoded, unquote(decoded)
    return None


def _climbs(parts: list[str]) -> bool:
    depth = 0
    for part in parts:
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return True
    return parts[0] in {".", ".."}
