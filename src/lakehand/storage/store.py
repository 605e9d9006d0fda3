"""The object store interface."""

from __future__ import annotations

import copy
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from lakehand import errors
from lakehand.observe.clock import Clock, SystemClock
from lakehand.storage.connection_options import Connection, Options, connect_options
from lakehand.storage.local_files import translated
from lakehand.storage.location import (
    check_key,
    check_keys,
    check_prefix,
    parse_location,
    parse_log_path,
)
from lakehand.storage.objects import (
    Backend,
    DeleteFailure,
    NotComposable,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
)
from lakehand.storage.retry import RETRY_SETTINGS, RetryPolicy, with_retry
from lakehand.storage.scanning import Scanned, Scanner, TreeScan

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lakehand.settings import Settings
    from lakehand.storage.aws_credentials import RenewedCredentials
    from lakehand.storage.location import Location
    from lakehand.storage.s3_composer import S3Composer

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_COPY_BYTES = 4 * 2**20
_DELETE_BATCH = 10_000


def open_store(
    uri: str | Path,
    options: Mapping[str, str] | None = None,
    *,
    credentials: RenewedCredentials | None = None,
) -> Store:
    """Open the root of a table: a path, or a URL of any supported store.

    `options` are connection options (`endpoint`, `region`, `access_key_id`, `allow_http`, ...); the
    environment variables of the store provide the others. `credentials` are used for S3 in place
    of those. No request is made yet.
    """
    location = parse_location(uri)
    if credentials is None:
        return _open(location, options)
    return _open(location, None, connect_options(location, options, credentials=credentials))


def _open(
    location: Location,
    options: Mapping[str, str] | None,
    connection: Connection | None = None,
) -> Store:
    if location.scheme == "memory":
        from lakehand.storage.memory import MemoryStore

        return MemoryStore(location.container, path=location.path)
    if location.scheme == "file":
        from lakehand.storage.local_backend import LocalBackend

        return Store(LocalBackend(location.path), location=location)
    from lakehand.storage.remote import RemoteBackend

    connection = connection or connect_options(location, options)
    backend: Backend = RemoteBackend(location, connection)
    if connection.locking:
        from lakehand.storage.locking import guard

        backend = guard(backend, location, connection)
    return Store(backend, location=location, connection=connection)


class Store:
    """Objects under one root. Keys are relative to it, '/'-separated, decoded and literal.

    Picklable, including credentials, which appear neither in `repr` nor in errors. Retryable errors
    are retried, except where a retry is unsafe: see `put_if_absent`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        location: Location,
        connection: Connection | None = None,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._backend = backend
        self._location = location
        #: Complete, so that another store of the same bucket can be opened in any process.
        self._connection = connection
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        #: Stores of absolute paths in the log, by URL of their root.
        self._other_stores: dict[str, Store] = {}

    @property
    def url(self) -> str:
        """The canonical URL of the root, without credentials and trailing slash."""
        return self._location.url

    @property
    def is_in_process(self) -> bool:
        """Whether the store is visible only in this process, because it is in memory."""
        return self._location.scheme == "memory"

    @property
    def sees_unfinished_uploads(self) -> bool:
        """Whether incomplete uploads of dead writers are visible.

        Object stores do not list the parts of an upload, and obstore cannot list or abort uploads.
        """
        return self._location.scheme in {"file", "memory"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def connection_options(self) -> Options:
        """Return the connection options, including secrets, for other libraries."""
        return self._connection.as_options() if self._connection else Options()

    def with_settings(self, settings: Settings) -> Self:
        """Return the same store with the retry policy of `settings`, if they set one.

        A store that was opened with its own policy keeps it unless a setting is given.
        """
        if all(settings.sources[name] == "default" for name in RETRY_SETTINGS):
            return self
        return self._with_retry(RetryPolicy.of(settings))

    def _with_retry(self, policy: RetryPolicy) -> Self:
        store = copy.copy(self)
        store._retry, store._other_stores = policy, {}  # noqa: SLF001
        store._backend = self._backend.with_retry(policy)  # noqa: SLF001
        return store

    # Reading

    def get(self, key: str) -> bytes:
        check_key(key)
        return self._try(self._backend.get, key)

    def keeping_reads(self) -> AbstractContextManager[None]:
        """Request each data file once within the block: small ones, and the ends of large ones.

        For operations that look at a file several times; the kept bytes are bounded.
        """
        return self._backend.keeping_reads()

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`, or fewer at the end of the object."""
        check_key(key)
        if length <= 0:
            return b""
        return self._try(self._backend.get_range, key, start, length)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Return the bytes of each (start, length), read in parallel; all must be inside."""
        check_key(key)
        wanted = [pair for pair in ranges if pair[1] > 0]
        found = self._try(self._backend.get_ranges, key, wanted) if wanted else []
        for (start, length), part in zip(wanted, found, strict=True):
            if len(part) != length:
                raise errors.StorageError(
                    f"{self.url}/{key} ends before byte {start + length}",
                    path=f"{self.url}/{key}",
                    operation="get",
                )
        parts = iter(found)
        return [next(parts) if length > 0 else b"" for _, length in ranges]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """Return the last `length` bytes (or all) and the size of the object."""
        check_key(key)
        return self._try(self._backend.get_tail, key, length)

    def get_many(self, keys: Iterable[str]) -> builtins.list[bytes]:
        """Return whole objects in the order of `keys`, read in parallel."""
        return self._map(self.get, list(keys))

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return self._try(self._backend.head, key)

    def head_all(self, keys: Iterable[str]) -> builtins.list[ObjectInfo]:
        """Return those of `keys` that exist, requested in parallel."""
        found = self._map(self._find, list(keys))
        return [info for info in found if info is not None]

    def _find(self, key: str) -> ObjectInfo | None:
        try:
            return self.head(key)
        except errors.ObjectNotFoundError:
            return None

    def exists(self, key: str) -> bool:
        return self._find(key) is not None

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Stream all objects below the directory `prefix`, ordered by key, starting after `after`.

        An interrupted listing continues after the last object.
        """
        return self._list(check_prefix(prefix), after)

    def _list(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        failures = 0
        while True:
            try:
                for info in self._backend.walk(prefix, after):
                    yield info
                    after, failures = info.key, 0
            except errors.StoreUnreachableError:
                failures += 1
                if failures > self._retry.max_retries:
                    raise
                self._clock.sleep(self._retry.delay_seconds(failures, chance=random.random()))  # noqa: S311
            else:
                return

    def scan(
        self,
        *,
        enter: Callable[[str], bool] = lambda _directory: True,
        directories: Iterable[str] = ("",),
        most_objects: int | None = None,
    ) -> TreeScan:
        """Stream objects below `directories` as rows of `SCAN_SCHEMA`, unordered, in parallel.

        A directory for which `enter` returns False is skipped if the store has directories;
        otherwise its objects may be included. After `most_objects`, no further directory is
        started.
        """
        chosen = map(check_prefix, directories)
        return TreeScan(self._scanner(), enter=enter, directories=chosen, most_objects=most_objects)

    @contextmanager
    def _scanner(self) -> Iterator[Scanner]:
        with self._backend.scanner() as scanner:
            attempt = partial(self._scan, scanner)
            yield replace(scanner, scan=attempt)

    def _scan(self, scanner: Scanner, directories: Sequence[str]) -> Iterator[Scanned]:
        def begin() -> tuple[Iterator[Scanned], Scanned | None]:
            pieces = scanner.scan(directories)
            return pieces, next(pieces, None)

        # Later parts are requested once: earlier ones must not be returned again.
        pieces, found = self._try(begin)
        while found is not None:
            yield found
            found = next(pieces, None)

    def list_directory(
        self, prefix: str = ""
    ) -> tuple[builtins.list[str], builtins.list[ObjectInfo]]:
        """Return the keys of the directories and the objects directly below `prefix`."""
        directory = check_prefix(prefix)
        return self._try(self._backend.list_directory, directory)

    def has_directory(self, key: str) -> bool:
        """Return whether a directory exists, or objects below it; one request, however many."""
        directory = check_key(key)
        path = self.local_path(directory)
        if path is None:
            return next(self.list(directory), None) is not None
        with suppress(errors.ObjectNotFoundError), translated("list", str(path)):
            return path.is_dir()
        return False

    def open_reader(self, key: str, *, size: int | None = None) -> ObjectReader:
        """Open an object as a seekable file; a known `size` saves a request."""
        known = self.head(key).bytes if size is None else size
        return ObjectReader(
            check_key(key),
            size=known,
            read_range=lambda start, length: self.get_range(key, start=start, length=length),
        )

    def download(self, key: str, path: str | Path) -> None:
        """Copy an object into a local file, in parallel and with bounded memory."""
        # The end comes with the size of the object: a small one takes a single request.
        tail, size = self.get_tail(key, _COPY_BYTES)
        end = size - len(tail)
        parts = [(start, min(_COPY_BYTES, end - start)) for start in range(0, end, _COPY_BYTES)]
        at_once = self._backend.parallel_requests
        with open(path, "wb") as target:  # noqa: PTH123  a Path or a string
            for first in range(0, len(parts), at_once):
                window = parts[first : first + at_once]
                target.writelines(self._map(lambda part: self.get_ranges(key, [part])[0], window))
            target.write(tail)

    # Writing

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing an existing one: readers see all of it or nothing."""
        check_key(key)
        self._try(self._backend.put, key, data)

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Write an object unless the key exists: of concurrent writers, exactly one succeeds.

        Raises ObjectExistsError if the key exists. Never retried: after StoreUnreachableError the
        object may or may not exist, and only its content shows who wrote it. Check the content
        after ObjectExistsError as well: a proxy may have repeated the request.
        """
        check_key(key)
        self._backend.put_if_absent(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        """Replace an object if its tag is still `etag`: of concurrent writers, one succeeds.

        Raises ObjectChangedError if the object has changed or is gone, and ConditionalPutError on
        local disk and Google Cloud Storage. Never retried, as `put_if_absent`.
        """
        check_key(key)
        self._backend.put_if_match(key, data, etag)

    def finish_puts(self, directory: str) -> None:
        """Finish puts of versions in `directory` that dead writers left half done.

        Only stores with a table of commits know of such puts: see `commit_entries`.
        """
        self._try(self._backend.finish_puts, check_prefix(directory))

    def open_writer(self, key: str) -> ObjectWriter:
        """Open an object for writing in parts; it becomes visible when the writer is closed."""
        return self._backend.open_writer(check_key(key))

    @property
    def may_compose(self) -> bool:
        """Whether the kind of store can make objects of ranges of others: S3."""
        return self._location.scheme == "s3"

    def composer(self) -> S3Composer:
        """Return what composes objects in the store; NotComposable with the reason if it cannot."""
        return self._backend.composer()

    def upload(self, path: str | Path, key: str) -> None:
        """Copy a local file into an object."""
        with open(path, "rb") as source, self.open_writer(key) as target:  # noqa: PTH123  as above
            shutil.copyfileobj(source, target, _COPY_BYTES)

    def delete(self, keys: Iterable[str]) -> builtins.list[DeleteFailure]:
        """Delete objects in batches; return those that could not be deleted.

        A missing key is not a failure. If the store stops answering, all remaining deletions fail.
        """
        left = check_keys(keys)
        failures: builtins.list[DeleteFailure] = []
        while left:
            batch = left[:_DELETE_BATCH]
            try:
                failures += self._try(self._backend.delete, batch)
            except errors.StoreUnreachableError as error:
                return failures + [DeleteFailure(key=key, error=error) for key in left]
            del left[:_DELETE_BATCH]
        return failures

    def remove_empty_directories(self, directories: Iterable[str]) -> int:
        """Remove empty directories, if the store has directories."""
        return self._backend.remove_empty_directories([check_key(key) for key in directories])

    def delete_unfinished(self, prefix: str, *, names: Iterable[str]) -> None:
        """Delete incomplete objects of dead writers below `prefix`, by the start of their names.

        Readers do not see such objects, and only the owner of the names knows that the writer is
        dead.
        """
        starts = tuple(names)
        if starts:
            self._try(self._backend.delete_unfinished, check_prefix(prefix), starts)

    def abort_uploads(self, start: str) -> None:
        """Abort unfinished uploads of dead writers whose keys start with `start`, if S3 lets us.

        Where the keys are known to obstore only, or may not list uploads, they stay until the
        bucket's own rules delete them.
        """
        if self.may_compose:
            with suppress(NotComposable, errors.StorageError), self.composer() as composer:
                composer.abort_uploads(check_key(start))

    # Locations

    def local_path(self, key: str) -> Path | None:
        """Return the local path of an object; None if it is not a local file."""
        return self._backend.local_path(check_key(key))

    def resolve(self, path: str) -> tuple[Store, str]:
        """Return the store and key of a decoded path from a log.

        A relative path stays in this store. An absolute path is resolved to the store of its bucket
        (or disk), with this store's options only if that is the same bucket.
        """
        target = parse_log_path(path, relative_to=self._location)
        if target is None:
            return self, check_key(path)
        if target.is_inside(self._location):
            return self, check_key(target.key_below(self._location))
        if target.scheme == "file" and self._location.scheme != "file":
            raise errors.UnsafePathError(
                f"the log of {self.url} references the local file {path!r}",
                path=path,
                hint="a table in an object store cannot reference local files",
            )
        return self._open_root_of(target), check_key(target.path.removeprefix("/"))

    def open_other(self, uri: str) -> Store:
        """Open another root, with this store's options only if it is in the same bucket."""
        location = parse_location(uri)
        is_near = location.is_same_bucket(self._location)
        return _open(location, None, self._connection if is_near else None)

    def _open_root_of(self, target: Location) -> Store:
        root = target.root()
        if root.url not in self._other_stores:
            connection = self._connection if root.is_same_bucket(self._location) else None
            store = _open(root, None, connection)
            self._other_stores[root.url] = store._with_retry(self._retry)  # noqa: SLF001
        return self._other_stores[root.url]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_other_stores": {}}

    # Retries

    def _try(self, action: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return with_retry(partial(action, *args, **options), policy=self._retry, clock=self._clock)

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> builtins.list[R]:
        workers = min(self._backend.parallel_requests, len(items))
        if workers <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, items))
