"""Locations of tables in one canonical form, and keys of objects relative to them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from lakehand.errors import UnsafePathError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Keys

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


# Locations

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>.*)", re.DOTALL
)
_HADOOP_FILE = re.compile(r"file:(?P<path>/(?!/).*)", re.DOTALL | re.IGNORECASE)
# A URI such as dbfs:/mnt/x, for which there is no store.
_OTHER_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<authority>)(?P<path>/.*)", re.DOTALL
)
_VIRTUAL_HOST = re.compile(
    r"(?P<bucket>.+)\.s3(?:[.-](?:dualstack\.)?(?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?",
)
_R2_HOST = re.compile(
    r"(?P<account>[^.]+)(?:\.(?P<jurisdiction>[^.]+))?\.r2\.cloudflarestorage\.com"
)
#: How a URL ends that grants access by itself: a shared access signature, or a presigned request.
_SIGNED = re.compile(r"[?&](?:sig|signature|x-amz-signature|x-goog-signature)=", re.IGNORECASE)
_AZURE_HOST = re.compile(r"(?P<account>[^.]+)\.(?:dfs|blob)\.(?P<domain>.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A root: the kind of store, the container, and the path in the container."""

    #: file, s3, r2, az, abfss, gs or memory.
    scheme: str
    #: Bucket or container (for abfss with its account); empty on local disk.
    container: str
    #: Decoded, without a slash at either end; on local disk the absolute path.
    path: str
    #: Connection options from the URL: region, account, endpoint.
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @property
    def url(self) -> str:
        """The canonical URL: no credentials, no trailing slash."""
        if self.scheme == "file":
            return f"file://{quote(self.path)}"
        return f"{self.scheme}://{self.container}/{self.path}".rstrip("/")

    def root(self) -> Location:
        """Return the root of this bucket, or of the local disk."""
        top = "/" if self.scheme == "file" else ""
        return _rebuild(self.scheme, self.container, top, dict(self.options))

    def is_same_bucket(self, other: Location) -> bool:
        return (self.scheme, self.container) == (other.scheme, other.container)

    def is_inside(self, other: Location) -> bool:
        return self.is_same_bucket(other) and self.path.startswith(other._directory)

    def key_below(self, other: Location) -> str:
        """Return the key of this location in a store whose root is `other`."""
        return self.path[len(other._directory) :]

    @property
    def _directory(self) -> str:
        return f"{self.path.rstrip('/')}/" if self.path else ""

    def __reduce__(self) -> tuple[object, ...]:
        # A mappingproxy cannot be pickled.
        return (_rebuild, (self.scheme, self.container, self.path, dict(self.options)))


def _rebuild(scheme: str, container: str, path: str, options: dict[str, str]) -> Location:
    return Location(
        scheme=scheme, container=container, path=path, options=MappingProxyType(options)
    )


def path_to_url(uri: str | Path) -> str:
    """Return the canonical URL of a path or URL.

    >>> path_to_url("s3a://lake/events/")
    's3://lake/events'
    """
    return parse_location(uri).url


def parse_location(uri: str | Path) -> Location:
    """Parse a path or URL. Only `file:` URLs are percent-decoded; object keys are literal.

    >>> parse_location("s3://lake.s3.eu-west-1.amazonaws.com/events").url
    's3://lake/events'
    """
    text = os.fspath(uri)
    if "\0" in text:
        raise UnsafePathError(f"the path {text!r} contains a NUL byte", path=text)
    if not text:
        raise ValidationError("the path of the table is empty", field="uri", value=text)
    if match := _HADOOP_FILE.fullmatch(text):
        return _local(unquote(match["path"]))
    if isinstance(uri, Path) or not (match := _URL.fullmatch(text) or _OTHER_URI.fullmatch(text)):
        return _local(text)
    if _SIGNED.search(match["path"]):
        raise _with_credentials(match["scheme"].lower())
    return _parse_url(match["scheme"].lower(), match["authority"], match["path"])


def parse_log_path(path: str, *, relative_to: Location) -> Location | None:
    """Parse a decoded path from the log of the table at `relative_to`; None if it is relative.

    A path that starts with a slash is in the bucket of the table, or on its disk.
    """
    if path.startswith("/"):
        return _absolute(relative_to, path)
    if match := _HADOOP_FILE.fullmatch(path):
        return _absolute(_LOCAL_DISK, match["path"])
    match = _URL.fullmatch(path) or _OTHER_URI.fullmatch(path)
    if not match:
        return None
    if match["scheme"].lower() == "file" and match["authority"] in {"", "localhost"}:
        return _absolute(_LOCAL_DISK, match["path"])
    return _parse_url(match["scheme"].lower(), match["authority"], match["path"])


def key_inside(path: str, root: Location) -> str | None:
    """Return the key below `root` of a decoded path from a log; None if it is not below it."""
    try:
        target = parse_log_path(path, relative_to=root)
    except (UnsafePathError, ValidationError):
        return None
    if target is None:
        return path
    return target.key_below(root) if target.is_inside(root) else None


def _absolute(neighbour: Location, path: str) -> Location:
    inner = _inner_path(path)
    literal = "/" + inner if neighbour.scheme == "file" else inner
    return _rebuild(neighbour.scheme, neighbour.container, literal, dict(neighbour.options))


def _parse_url(scheme: str, authority: str, path: str) -> Location:
    parser = _PARSERS.get(scheme)
    if parser is None:
        known = ", ".join(f"{name}://" for name in _PARSERS)
        raise ValidationError(
            f"{scheme}:// is not a supported kind of store",
            field="uri",
            value=f"{scheme}://",
            hint=f"use a path or one of {known}",
        )
    if scheme != "file" and not authority:
        raise ValidationError(
            f"the URL has no bucket: {scheme}://{authority}{path}",
            field="uri",
            hint=f"write it as {scheme}://bucket/path, with two slashes",
        )
    if scheme != "memory" and (not authority.isprintable() or " " in authority):
        raise ValidationError(
            f"the bucket name contains a space or a control character: {authority!r}",
            field="uri",
        )
    if ":" in authority.rpartition("@")[0]:
        raise _with_credentials(scheme)
    return parser(scheme, authority, path)


def _with_credentials(scheme: str) -> ValidationError:
    return ValidationError(
        f"the {scheme}:// URL contains credentials",
        field="uri",
        hint="pass them as options or environment variables; URLs appear in logs",
    )


def _local(path: str) -> Location:
    absolute = os.path.normpath(os.path.join(os.getcwd(), path))  # noqa: PTH109, PTH118  literal
    return Location(scheme="file", container="", path="/" + absolute.lstrip("/"))


def _file_url(scheme: str, authority: str, path: str) -> Location:
    if authority not in {"", "localhost"}:
        raise ValidationError(
            f"{scheme}://{authority}{path} has a host",
            field="uri",
            hint="use file:///path with three slashes for local paths",
        )
    decoded = unquote(path)
    if "\0" in decoded:
        raise UnsafePathError(f"the path {path!r} contains an encoded NUL byte", path=path)
    return _local(decoded or "/")


def _inner_path(path: str) -> str:
    return check_prefix(path.removeprefix("/").rstrip("/"))


def _s3(_scheme: str, authority: str, path: str) -> Location:
    options: dict[str, str] = {}
    bucket = authority.rpartition("@")[2]
    if match := _VIRTUAL_HOST.fullmatch(bucket):
        bucket = match["bucket"]
        if match["region"]:
            options["region"] = match["region"]
    return _rebuild("s3", bucket, _inner_path(path), options)


def _r2(_scheme: str, authority: str, path: str) -> Location:
    match = _R2_HOST.fullmatch(authority)
    if not match:
        return _rebuild("r2", authority, _inner_path(path), {})
    options = {name: value for name, value in match.groupdict().items() if value}
    bucket, _, inner = path.removeprefix("/").partition("/")
    if not bucket:
        raise ValidationError(
            f"the URL has no bucket: r2://{authority}{path}",
            field="uri",
            hint="write r2://<account>.r2.cloudflarestorage.com/<bucket>/<path>",
        )
    return _rebuild("r2", bucket, _inner_path(inner), options)


def _azure(scheme: str, authority: str, path: str) -> Location:
    canonical = "az" if scheme == "az" else "abfss"
    container, _, host = authority.partition("@")
    if not host:
        return _rebuild(canonical, container, _inner_path(path), {})
    if match := _AZURE_HOST.fullmatch(host):
        # One table has one URL, through whichever of the two services it is named.
        account, host = match["account"], f"{match['account']}.dfs.{match['domain']}"
    else:
        account = host
    authority = f"{container}@{host}"
    return _rebuild("abfss", authority, _inner_path(path), {"account_name": account})


def _bucket(scheme: str, authority: str, path: str) -> Location:
    return _rebuild("gs" if scheme == "gcs" else scheme, authority, _inner_path(path), {})


_LOCAL_DISK = Location(scheme="file", container="", path="/")
_PARSERS: Mapping[str, Callable[[str, str, str], Location]] = {
    "file": _file_url,
    "s3": _s3,
    "s3a": _s3,
    "r2": _r2,
    "az": _azure,
    "abfs": _azure,
    "abfss": _azure,
    "wasb": _azure,
    "wasbs": _azure,
    "gs": _bucket,
    "gcs": _bucket,
    "memory": _bucket,
}
