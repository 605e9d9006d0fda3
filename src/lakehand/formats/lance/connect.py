"""Opening datasets: with the options of their store, their manifests, and typed errors."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakehand import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakehand.storage import Store

MANIFESTS = "_versions"
DATA_DIRECTORY = "data"
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
    keys = (info.key for info in store.list(MANIFESTS))
    versions = ((version_of_key(key), key) for key in keys)
    return {version: key for version, key in versions if version is not None}


def version_of_key(key: str) -> int | None:
    """Return the version whose manifest has this key; None if it is another object's."""
    found = _NAME.fullmatch(key)
    return None if found is None else _version(found["number"])


def has_detached_versions(store: Store) -> bool:
    """Say whether there are versions outside of the history, which only their makers know."""
    return any(_DETACHED.fullmatch(info.key) for info in store.list(MANIFESTS))


def _version(number: str) -> int:
    return _LAST - int(number) if len(number) == _DIGITS else int(number)


#: Lance adds where in its own source an error came up.
_SOURCE_PLACE = re.compile(r",? ?/[^ ]*/rust/[^ ]*\.rs:\d+:\d+")
_MISSING = re.compile(r"not found", re.IGNORECASE)
#: The store or the disk failed, and nothing is known of what it holds.
_UNREACHED = re.compile(r"os error \d|Generic \w+ error|timed? ?out|denied", re.IGNORECASE)
_DAMAGED = re.compile(
    r"sufficient data|too small|corrupt|magic|decod|invalid|LanceError\((Schema|Arrow)\)",
    re.IGNORECASE,
)
#: What Lance raises, or Arrow and Python of what Lance hands out, apart from a panic.
_FAILURES = (OSError, ValueError, RuntimeError, ArithmeticError)


def load_lance() -> Any:
    """Return the library; NotInstalledError, with the command, if it is missing."""
    try:
        import lance
        import lance.fragment
        import lance.optimize
    except ImportError as error:
        raise errors.NotInstalledError(
            "this is a Lance table, and the Lance library is not installed",
            hint="install it with: pip install 'lakehand[lance]'",
        ) from error
    return lance


def address(store: Store) -> str:
    """Return where a store is, as Lance spells it."""
    url = store.url
    if url.startswith("file://"):
        return unquote(url.removeprefix("file://"))
    if url.startswith("memory://"):
        raise errors.RefusedError(
            f"{url} is in the memory of lakehand, where Lance does not find it",
            table=url,
            operation="read",
            hint="keep Lance tables on disk or in an object store",
        )
    return re.sub("^r2://", "s3://", url)


def open_dataset(store: Store, version: int | None = None) -> Any:
    """Open a version, the newest if None; VersionNotFoundError if it is not there."""
    lance = load_lance()
    options = store.connection_options() or None
    with reading(store, version, newest=version is None):
        return lance.dataset(address(store), version=version, storage_options=options)


@contextmanager
def reading(store: Store, version: int | None = None, *, newest: bool = False) -> Iterator[None]:
    """Turn what Lance raises while it reads manifests into an error of lakehand.

    `version` is the one that is read; None: several, or the `newest`.
    """
    try:
        yield
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        raise _unread(store, version, error, newest=newest) from None


def is_lance_failure(error: BaseException) -> bool:
    """Say whether an error is one that Lance raises, a panic among them."""
    return isinstance(error, _FAILURES) or _is_panic(error)


def failure_of(commit: Callable[[], Any]) -> BaseException | None:
    """Let Lance commit; return the error, whose meaning is found out from the table."""
    try:
        commit()
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            return error
        raise
    return None


def _unread(
    store: Store, version: int | None, error: BaseException, *, newest: bool
) -> errors.LakehandError:
    keys = manifest_keys(store)
    is_there = bool(keys) if version is None else version in keys
    if _MISSING.search(str(error)) and not is_there:
        which = "version that can be read" if version is None else f"version {version} any more"
        return errors.VersionNotFoundError(
            f"{store.url} has no {which}", table=store.url, version=version
        )
    if not _is_damage(store, error):
        return errors.StorageError(
            f"{store.url} cannot be opened: {said(error, store)}", path=store.url
        )
    if version is None:
        version = max(keys, default=None) if newest else _named_version(keys, error)
    which = "a version" if version is None else f"version {version}"
    path = None if version is None else keys.get(version)
    manifest = "" if path is None else f" ({path})"
    return errors.CorruptLogError(
        f"{which} of {store.url}{manifest} cannot be read: {said(error, store)}",
        table=store.url,
        version=version,
        path=path,
        hint="run `lakehand verify` on the table, which names every version that cannot be read,"
        " then bring their manifests back from a backup, or run `lakehand repair`",
    )


def _is_damage(store: Store, error: BaseException) -> bool:
    """Say whether a manifest is broken, and not the way to it; a disk hardly fails otherwise."""
    if _is_panic(error) or not isinstance(error, OSError):
        return True
    if _UNREACHED.search(str(error)):
        return False
    return bool(_DAMAGED.search(str(error))) or store.url.startswith("file://")


def _named_version(keys: Mapping[int, str], error: BaseException) -> int | None:
    return next((version for version, key in keys.items() if key in str(error)), None)


def said(error: BaseException, store: Store) -> str:
    """Return what Lance says of an error, unless it may repeat a signed request."""
    if not store.url.startswith("file://"):
        return type(error).__name__
    return _SOURCE_PLACE.sub("", str(error)).strip()


@contextmanager
def translated(store: Store, doing: str) -> Iterator[None]:
    """Turn what Lance raises while it reads into an error of lakehand."""
    try:
        yield
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        if _MISSING.search(str(error)):
            raise errors.ObjectNotFoundError(
                f"Lance failed {doing} of {store.url}, because a file is gone:"
                f" {said(error, store)}",
                path=store.url,
                hint="read the newest version; what is read for longer than vacuum's retention"
                " needs a pin. If the newest one lacks files, run `lakehand verify` on the table",
            ) from None
        raise errors.CorruptFileError(
            f"Lance failed {doing} of {store.url}: {said(error, store)}",
            table=store.url,
            hint="run `lakehand verify` on the table",
        ) from None


def _is_panic(error: BaseException) -> bool:
    """Say whether the library itself gave up, which Python takes for no common exception."""
    return type(error).__name__ == "PanicException"


def told(store: Store, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass on what Lance reads, with its errors as errors of lakehand."""
    with translated(store, "to read fragments"):
        yield from batches
