"""Patterns of table URLs: `*` is anything in one part of a path, `**` any number of parts."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Iterable

_WILDCARDS = re.compile(r"\*\*/?|\*|\?|\[[^\]]*\]")


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts, end = [], 0
    for found in _WILDCARDS.finditer(pattern):
        parts.append(re.escape(pattern[end : found.start()]))
        parts.append(_regex(found[0]))
        end = found.end()
    parts.append(re.escape(pattern[end:]))
    return re.compile("".join(parts))


def _regex(wildcard: str) -> str:
    if wildcard == "**/":
        return "(?:.*/)?"
    return {"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(wildcard, wildcard)


def absolute_pattern(pattern: str) -> str:
    """Return a pattern with the scheme of its URLs: paths of this machine become `file:` URLs.

    >>> absolute_pattern("/data/*")
    'file:///data/*'
    """
    if "://" in pattern or pattern.startswith("**"):
        return pattern.rstrip("/")
    fixed, rest = split_pattern(pattern)
    url = path_to_url(fixed or ".").rstrip("/")
    return f"{url}/{rest}" if rest else url


def is_pattern(named: str) -> bool:
    """Whether a name is a pattern, and not a path of this machine that looks like one.

    >>> is_pattern("s3://lake/*/events"), is_pattern("s3://lake/events")
    (True, False)
    """
    return _WILDCARDS.search(named) is not None and not Path(named).exists()


def split_pattern(pattern: str) -> tuple[str, str]:
    """Return the directory up to which a pattern is fixed, and the rest.

    >>> split_pattern("s3://lake/sales/*/2026")
    ('s3://lake/sales', '*/2026')
    >>> split_pattern("s3://lake/sales")
    ('s3://lake/sales', '')
    """
    found = _WILDCARDS.search(pattern)
    if found is None:
        return pattern.rstrip("/"), ""
    end = pattern.rfind("/", 0, found.start())
    return pattern[: max(end, 0)], pattern[end + 1 :]


def matches(url: str, pattern: str) -> bool:
    """Whether a pattern describes a URL.

    >>> matches("s3://lake/sales/orders", "s3://lake/*/orders")
    True
    >>> matches("s3://lake/sales/eu/orders", "s3://lake/*/orders")
    False
    >>> matches("s3://lake/sales/eu/orders", "s3://lake/**")
    True
    """
    return _compiled(absolute_pattern(pattern)).fullmatch(url.rstrip("/")) is not None


def matches_name(name: str, pattern: str) -> bool:
    """Whether a pattern without a slash describes the name of a table.

    >>> matches_name("sales.orders", "sales.*")
    True
    """
    return _compiled(pattern).fullmatch(name) is not None


def matches_any(url: str, patterns: Iterable[str]) -> bool:
    return any(matches(url, pattern) for pattern in patterns)


def may_lead_to(url: str, pattern: str) -> bool:
    """Whether a directory may hold something that a pattern describes.

    >>> may_lead_to("s3://lake/sales", "s3://lake/*/orders")
    True
    >>> may_lead_to("s3://lake/sales/old", "s3://lake/*/orders")
    False
    """
    pattern = absolute_pattern(pattern)
    depth = url.rstrip("/").count("/")
    parts = pattern.split("/")
    if "**" in parts[: depth + 1]:
        stop = parts.index("**")
        head = "/".join(parts[:stop])
        return _compiled(head).fullmatch("/".join(url.split("/")[:stop])) is not None
    if depth >= len(parts) - 1:
        return False
    return _compiled("/".join(parts[: depth + 1])).fullmatch(url.rstrip("/")) is not None
