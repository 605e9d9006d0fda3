"""Paths as a Delta log spells them (URI references) and as storage knows them (decoded).

Two spellings of one file occur, because engines encode different sets of characters. Everything in
lakehand compares decoded paths; the spelling of the log is kept beside them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from lakehand.errors import CorruptLogError
from lakehand.storage.location import Location, key_inside, parse_location

__all__ = ["OTHER_PATHS", "decode_path", "encode_path", "is_absolute", "path_in_table"]

#: Where a file of a snapshot keeps further spellings of its path that the log has entries for.
OTHER_PATHS = "other_paths"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL_URL = "file:///"
# Characters that engines leave as they are; everything else becomes %XX.
_BARE = "/=:@+-._~!$&'()*,;"


def encode_path(decoded: str) -> str:
    """Return the spelling of a decoded path for the log.

    >>> encode_path("p=a%3Ab/part 1.parquet")
    'p=a%253Ab/part%201.parquet'
    """
    encoded = quote(decoded, safe=_BARE)
    first, slash, rest = encoded.partition("/")
    if is_absolute(decoded) or ":" not in first:
        return encoded
    # A colon in the first segment of a relative path would read as the end of a scheme.
    return first.replace(":", "%3A") + slash + rest


def decode_path(raw: str) -> str:
    """Return the one name of the file that `raw` of the log names.

    A local URL with an empty authority and the bare absolute path are the same file; `file:/x` is
    kept apart from both, because that is how the reference implementation reconciles files.
    """
    try:
        decoded = unquote(raw, errors="strict") if "%" in raw else raw
    except UnicodeDecodeError as error:
        message = f"the log names a file whose path is not UTF-8 when decoded: {raw!r}"
        raise CorruptLogError(message, path=raw) from error
    if decoded.startswith(_LOCAL_URL):
        return decoded[len(_LOCAL_URL) - 1 :]
    return decoded


def path_in_table(decoded: str, table: str) -> str:
    """Return the one name of a file, whichever way a log spells it, in the table at URL `table`.

    An absolute path that leads into the table becomes relative to its root.

    >>> path_in_table("s3://lake/events/p=1/a.parquet", "s3://lake/events")
    'p=1/a.parquet'
    """
    if not is_absolute(decoded):
        return decoded
    return key_inside(decoded, _location(table)) or decoded


@lru_cache(maxsize=64)
def _location(table: str) -> Location:
    return parse_location(table)


def is_absolute(path: str) -> bool:
    """Say whether a path names a file by scheme or from the root, and not within the table."""
    return path.startswith("/") or _SCHEME.match(path) is not None
