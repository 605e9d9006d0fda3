"""Objects in S3, R2, Azure and Google Cloud, through obstore."""

from __future__ import annotations

import copy
import queue
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from obstore import exceptions as obstore_errors

from lakehand import errors
from lakehand.storage.clients import open_client, require_own_process
from lakehand.storage.error_translation import Failure, translated
from lakehand.storage.kept_reads import KeptReads
from lakehand.storage.location import Location, join_key
from lakehand.storage.objects import PROBE_PREFIX, DeleteFailure, ObjectInfo, ObjectWriter
from lakehand.storage.retry import RetryPolicy
from lakehand.storage.scan_columns import SCAN_SCHEMA, batch_of_objects
from lakehand.storage.scanning import Scanned, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obstore import ObjectMeta
    from obstore.store import ObjectStore

    from lakehand.storage.connection_options import Connection
    from lakehand.storage.s3_composer import S3Composer

_TRUSTED_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".r2.cloudflarestorage.com")
_proved: set[tuple[str | None, str]] = set()
_TRIES = 3


def is_trusted(connection: Connection) -> bool:
    """Return whether the store is known to support put-if-absent, or the caller says so."""
    if connection.endpoint is None or connection.config.get("conditional_put") == "etag":
        return True
    host = urlsplit(connection.endpoint).hostname or ""
    return f".{host}".endswith(_TRUSTED_HOSTS)


def require_conditional_put(
    location: Location, connection: Connection, refuses_overwrite: Callable[[], bool]
) -> None:
    """Raise ConditionalPutError if the store overwrites an object despite If-None-Match.

    Some S3-compatible servers ignore the condition and report success. Each endpoint and bucket is
    tested once per process and the tasks that it starts.
    """
    position = _position(location, connection)
    if position in _proved or is_trusted(connection):
        return
    if _retry_unanswered(refuses_overwrite):
        _proved.add(position)
        return
    raise errors.ConditionalPutError(
        f"{location.url} overwrote an existing object despite If-None-Match, so "
        "concurrent commits could overwrite each other",
        path=location.url,
        operation="put-if-absent",
        hint="use a store with conditional writes; nothing was committed",
    )


def _position(location: Location, connection: Connection) -> tuple[str | None, str]:
    return connection.endpoint, location.container


def _retry_unanswered(question: Callable[[], bool]) -> bool:
    """Retry a request without an answer: this probe commits nothing, so a retry does no harm."""
    for _ in range(_TRIES - 1):
        with suppress(errors.StoreUnreachableError):
            return question()
    return question()


_AZURE = frozenset({"az", "abfss"})
_PART_BYTES = 8 * 2**20
_PARALLEL_PARTS = 4
_POLL_SECONDS = 0.05
#: How long a part may be in flight. A part that arrives after the abort is never deleted.
_LANDING_SECONDS = 2.0


class _AbortedError(Exception):
    """Raised inside the upload, so that obstore aborts the parts that were sent."""


class StreamingWriter(ObjectWriter):
    """Sends parts of 8 MiB from a thread; an object that fits into one part is a single PUT."""

    def __init__(self, key: str, *, client: ObjectStore, name: str, url: str) -> None:
        super().__init__(key)
        self._client = client
        self._name = name
        self._url = url
        self._buffer = bytearray()
        self._parts: queue.Queue[bytes | _AbortedError | None] = queue.Queue(maxsize=2)
        self._upload: Future[None] | None = None

    def _write(self, view: memoryview) -> None:
        while view.nbytes:
            if len(self._buffer) == _PART_BYTES:
                self._send(bytes(self._buffer))
                self._buffer.clear()
            room = _PART_BYTES - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]

    def _commit(self) -> None:
        if self._upload is None:
            with translated("put", self._url):
                obstore.put(self._client, self._name, bytes(self._buffer), use_multipart=False)
            return
        self._send(bytes(self._buffer))
        self._send(None)
        with translated("put", self._url):
            self._upload.result()
        self._require_whole()

    def _require_whole(self) -> None:
        """Raise unless the store has all bytes of a completed upload.

        A busy versitygw confirmed uploads of a thousand parts and did not have the objects. The
        cause is unknown; a completion whose answer came late may have been sent again.
        """
        try:
            with translated("head", self._url):
                found = obstore.head(self._client, self._name)["size"]
        except errors.ObjectNotFoundError:
            found = 0
        if found != self.tell():
            raise errors.StorageError(
                f"the store confirmed the upload of {self._url}, but has {found:,} of its"
                f" {self.tell():,} bytes",
                path=self._url,
                operation="put",
                hint="nothing refers to the object; run the operation again, with a longer timeout"
                " of the store if the object is large",
            )

    def _discard(self) -> None:
        self._buffer.clear()
        if self._upload is not None:
            self._pass_on(_AbortedError())
            self._upload.exception()

    def _send(self, part: bytes | None) -> None:
        if self._upload is None:
            self._upload = self._start()
        if not self._pass_on(part):
            with translated("put", self._url):
                self._upload.result()

    def _pass_on(self, part: bytes | _AbortedError | None) -> bool:
        """Pass on `part`; False if the upload has ended."""
        while self._upload is not None and not self._upload.done():
            try:
                self._parts.put(part, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def _start(self) -> Future[None]:
        upload: Future[None] = Future()
        # A daemon thread: a writer that is never closed must not keep the process from exiting.
        threading.Thread(target=self._run, args=(upload,), daemon=True).start()
        return upload

    def _run(self, upload: Future[None]) -> None:
        try:
            obstore.put(
                self._client,
                self._name,
                self._take(),
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARALLEL_PARTS,
            )
        except BaseException as error:  # noqa: BLE001  passed to the writing thread
            upload.set_exception(error)
        else:
            upload.set_result(None)

    def _take(self) -> Iterator[bytes]:
        last_sent = -_LANDING_SECONDS
        while (part := self._parts.get()) is not None:
            if isinstance(part, _AbortedError):
                # There is no notification when the parts that were sent have arrived.
                time.sleep(max(0.0, last_sent + _LANDING_SECONDS - time.monotonic()))
                raise part
            last_sent = time.monotonic()
            yield part


_LIST_CHUNK = 1000
_SCAN_CHUNK = 50_000
#: Maximum number of directories of a root that are skipped, each at the cost of a request.
_MAX_SKIPPED_DIRECTORIES = 8
#: No name in a directory starts with a later character.
_LAST_CHARACTER = "\U0010ffff"
# The store retries whole operations itself. A retry inside obstore would be unsafe: a put-if-absent
# whose answer was lost would find its own object and report that the key exists.
_NO_RETRY: dict[str, Any] = {"max_retries": 0}
# Parts of an upload, and requests of a listing, are safe to retry.
_PARTS_TIMEOUT = timedelta(minutes=2)


class RemoteBackend:
    """A path in a bucket or container."""

    parallel_requests = 16

    def __init__(self, location: Location, connection: Connection) -> None:
        self._location = location
        self._connection = connection
        self._root = location.path
        self._retry = RetryPolicy()
        self._kept = KeptReads()
        self._whole_client  # noqa: B018  raises for invalid options

    def __getstate__(self) -> dict[str, Any]:
        live = {"_whole_client", "_part_client", "_kept"}
        state = {name: value for name, value in self.__dict__.items() if name not in live}
        # Tasks need not test again what this process has tested.
        return {**state, "is_proved": _position(self._location, self._connection) in _proved}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("is_proved"):
            _proved.add(_position(state["_location"], state["_connection"]))
        self.__dict__.update(state)
        self._kept = KeptReads()

    def with_retry(self, policy: RetryPolicy) -> Self:
        """Return the same backend, which retries parts of uploads and listings by `policy`."""
        backend = copy.copy(self)
        backend._retry = policy  # noqa: SLF001
        return backend

    def __repr__(self) -> str:
        return f"RemoteBackend({self._location.url!r})"

    @cached_property
    def _whole_client(self) -> ObjectStore:
        return open_client(self._location, self._connection, retry=_NO_RETRY)

    @cached_property
    def _part_client(self) -> ObjectStore:
        policy = self._retry
        backoff = {
            "init_backoff": policy.base_delay,
            "max_backoff": policy.max_delay,
            "base": policy.multiplier,
        }
        retry = {
            "max_retries": policy.max_retries,
            "retry_timeout": _PARTS_TIMEOUT,
            "backoff": backoff,
        }
        return open_client(self._location, self._connection, retry=retry)

    @property
    def _client(self) -> ObjectStore:
        self._check_client()
        return self._whole_client

    @property
    def _repeating_client(self) -> ObjectStore:
        self._check_client()
        return self._part_client

    def _check_client(self) -> None:
        require_own_process()
        if self._connection.credentials is not None:
            # Here, because an error inside obstore's call for them would be hidden by its own.
            self._connection.credentials.current()

    def _name(self, key: str) -> str:
        if "\\" in key and self._location.scheme in _AZURE:
            raise errors.UnsafePathError(
                f"the path {key!r} is not allowed: Azure takes a backslash for a slash",
                path=key,
                hint="rename what the path comes from; on Azure, it would name another object",
            )
        return join_key(self._root, key) if key else self._root

    def _url(self, key: str) -> str:
        return f"{self._location.url}/{key}"

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        path = meta["path"]
        return ObjectInfo(
            key=path[len(self._root) + 1 :] if self._root else path,
            bytes=meta["size"],
            modified_at=meta["last_modified"],
            etag=meta["e_tag"],
        )

    def finish_puts(self, directory: str) -> None:
        """Do nothing: a put of this store is done, or it is not."""

    def delete_unfinished(self, prefix: str, names: tuple[str, ...]) -> None:
        """Do nothing: incomplete uploads are not visible in this store."""

    def local_path(self, key: str) -> None:  # noqa: ARG002
        return None

    def keeping_reads(self) -> AbstractContextManager[None]:
        """Request each data file once within the block, as far as there is room to keep it."""
        return self._kept.keeping()

    def get(self, key: str) -> bytes:
        with translated("get", self._url(key)):
            return obstore.get(self._client, self._name(key)).bytes().to_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        kept = self._kept.part(key, start, length)
        if kept is not None:
            return kept
        with translated("get", self._url(key)):
            try:
                data = obstore.get_range(self._client, self._name(key), start=start, length=length)
            except obstore_errors.GenericError as error:
                if not Failure.of(error, "get").is_out_of_range:
                    raise
                return b""
            return data.to_bytes()

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        kept = [self._kept.part(key, start, length) for start, length in ranges]
        if None not in kept:
            return [part for part in kept if part is not None]
        starts = [start for start, _ in ranges]
        lengths = [length for _, length in ranges]
        with translated("get", self._url(key)):
            parts = obstore.get_ranges(
                self._client, self._name(key), starts=starts, lengths=lengths
            )
        return [part.to_bytes() for part in parts]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        kept = self._kept.tail(key, length)
        if kept is None:
            kept = self._get_tail(key, length)
            self._kept.add(key, *kept)
        return kept

    def _get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        with translated("get", self._url(key)):
            try:
                result = obstore.get(
                    self._client, self._name(key), options={"range": {"suffix": length}}
                )
                return result.bytes().to_bytes(), result.meta["size"]
            except (obstore_errors.BaseError, NotImplementedError) as error:
                if not Failure.of(error, "get").is_range_error:
                    raise
        return self._get_tail_by_size(key, length)

    def _get_tail_by_size(self, key: str, length: int) -> tuple[bytes, int]:
        """Request the size first: Azure has no suffix ranges, S3 none for an empty object."""
        size = self.head(key).bytes
        start = max(size - length, 0)
        return (self.get_range(key, start, size - start) if size else b""), size

    def head(self, key: str) -> ObjectInfo:
        with translated("head", self._url(key)):
            return self._info(obstore.head(self._client, self._name(key)))

    def walk(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        if _lists_in_order(self._location):
            return self._objects(prefix, after, offset=self._name(after) if after else None)
        return iter(sorted(self._objects(prefix, after), key=lambda info: info.key))

    def _objects(
        self, prefix: str, after: str | None, *, offset: str | None = None
    ) -> Iterator[ObjectInfo]:
        with translated("list", self._url(prefix)):
            directory = self._name(prefix) or None
            chunks = obstore.list(self._client, directory, offset=offset, chunk_size=_LIST_CHUNK)
            for chunk in chunks:
                for info in map(self._info, chunk):
                    if after is None or info.key > after:
                        yield info

    def list_directory(self, prefix: str) -> tuple[list[str], list[ObjectInfo]]:
        with translated("list", self._url(prefix)):
            found = obstore.list_with_delimiter(self._client, self._name(prefix) or None)
        skip = len(self._root) + 1 if self._root else 0
        directories = sorted(path[skip:] for path in found["common_prefixes"])
        return directories, sorted(map(self._info, found["objects"]), key=lambda info: info.key)

    def scanner(self) -> AbstractContextManager[Scanner]:
        return nullcontext(Scanner(scan=self._scan, parallel=self.parallel_requests))

    def _scan(self, directories: Sequence[str]) -> Iterator[Scanned]:
        """List the root by its directories, which are then listed in parallel."""
        (directory,) = directories
        if not directory:
            yield from self._scan_root()
            return
        for objects in self._pages(directory, at_once=_SCAN_CHUNK):
            yield Scanned(objects=objects)

    def _scan_root(self) -> Iterator[Scanned]:
        """List the objects in the root, and its directories.

        A delimited listing is returned as a whole, however many objects there are. So, if listings
        are ordered by key, the root is listed recursively, and its first directories are skipped: a
        table without partitions has few directories, and one with partitions has few objects in the
        root.
        """
        after, met = None, list[str]()
        while _lists_in_order(self._location) and len(met) < _MAX_SKIPPED_DIRECTORIES:
            directory = None
            for page in self._pages("", after=after, at_once=_LIST_CHUNK):
                objects, directory = _before_directory(page)
                yield Scanned(objects=objects, directories=_new(directory, met))
                if directory is not None:
                    break
            if directory is None:
                return
            met.append(directory)
            after = f"{directory}/{_LAST_CHARACTER}"
        yield self._level(after, met)

    def _level(self, after: str | None, met: Sequence[str]) -> Scanned:
        """List the root with a delimiter, without what was seen before (`met`)."""
        with translated("list", self._url("")):
            found = obstore.list_with_delimiter(
                self._repeating_client, self._name("") or None, return_arrow=True
            )
        skip = len(self._root) + 1 if self._root else 0
        names = sorted({path[skip:] for path in found["common_prefixes"]} - {*met})
        objects = self._batch(pa.table(found["objects"]))
        if after is not None:
            objects = objects.filter(pc.greater(objects["key"], after))
        return Scanned(objects=objects, directories=tuple(names))

    def _pages(
        self, directory: str, *, at_once: int, after: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        with translated("list", self._url(directory)):
            chunks = obstore.list(
                self._repeating_client,
                self._name(directory) or None,
                offset=self._name(after) if after else None,
                chunk_size=at_once,
                return_arrow=True,
            )
            for chunk in chunks:
                yield self._batch(pa.table(chunk))

    def _batch(self, found: pa.Table) -> pa.RecordBatch:
        start = len(self._root) + 1 if self._root else 0
        columns = [
            pc.utf8_slice_codeunits(found["path"].cast(pa.string()), start),
            found["size"].cast(pa.int64()),
            found["last_modified"].cast(SCAN_SCHEMA.field("modified_at").type),
            pa.chunked_array([pa.repeat(pa.scalar(False), found.num_rows)]),  # noqa: FBT003
        ]
        whole = pa.Table.from_arrays(columns, schema=SCAN_SCHEMA).combine_chunks()
        return whole.to_batches()[0] if whole.num_rows else batch_of_objects(())

    def remove_empty_directories(self, directories: Sequence[str]) -> int:  # noqa: ARG002
        return 0

    def put(self, key: str, data: bytes) -> None:
        self._kept.forget(key)
        with translated("put", self._url(key)):
            obstore.put(self._client, self._name(key), data, use_multipart=False)

    def put_if_absent(self, key: str, data: bytes) -> None:
        require_conditional_put(self._location, self._connection, self._refuses_overwrite)
        self._create(key, data)

    def _refuses_overwrite(self) -> bool:
        key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
        self.put(key, b"first")
        try:
            self._create(key, b"second")
        except errors.ObjectExistsError:
            return True
        finally:
            self.delete([key])
        return False

    def _create(self, key: str, data: bytes) -> None:
        with translated("put-if-absent", self._url(key)):
            obstore.put(self._client, self._name(key), data, mode="create", use_multipart=False)

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        path = self._url(key)
        if self._location.scheme == "gs":
            message = f"{path} cannot be replaced on a condition: Google has generations, no tags"
            raise errors.ConditionalPutError(message, path=path, operation="put-if-match")
        try:
            with translated("put-if-match", path):
                mode: Any = {"e_tag": etag}
                obstore.put(self._client, self._name(key), data, mode=mode, use_multipart=False)
        except (errors.ObjectExistsError, errors.ObjectNotFoundError):
            message = f"{path} changed, or is gone"
            raise errors.ObjectChangedError(message, path=path, operation="put-if-match") from None

    def open_writer(self, key: str) -> ObjectWriter:
        self._kept.forget(key)
        require_own_process()
        return StreamingWriter(
            key, client=self._part_client, name=self._name(key), url=self._url(key)
        )

    def composer(self) -> S3Composer:
        """Return what composes objects in the store; NotComposable if it cannot."""
        from lakehand.storage.s3_composer import S3Composer
        from lakehand.storage.s3_requests import S3Requests

        requests = S3Requests(self._location, self._connection, self._retry)
        return S3Composer(requests, self._root)

    def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        try:
            with translated("delete", self._url(keys[0])):
                # obstore splits it into requests of 1,000 keys, several in parallel.
                obstore.delete(self._client, [self._name(key) for key in keys])
        except errors.StoreUnreachableError:
            raise
        except errors.StorageError:
            # The answer has only the first failure, if any; single deletions have one each.
            with ThreadPoolExecutor(self.parallel_requests) as pool:
                return [failure for failure in pool.map(self._delete_one, keys) if failure]
        return []

    def _delete_one(self, key: str) -> DeleteFailure | None:
        try:
            with translated("delete", self._url(key)):
                obstore.delete(self._client, self._name(key))
        except errors.ObjectNotFoundError:
            return None
        except errors.StorageError as error:
            return DeleteFailure(key=key, error=error)
        return None


def _lists_in_order(location: Location) -> bool:
    """Return whether listings are ordered by key: not on Azure and S3 Express."""
    by_key = location.scheme in {"s3", "r2", "gs"}
    return by_key and not location.container.endswith("--x-s3")


def _before_directory(page: pa.RecordBatch) -> tuple[pa.RecordBatch, str | None]:
    """Return the objects of a root before the first one in a directory, and that directory."""
    position = pc.index(pc.match_substring(page["key"], "/"), True).as_py()
    if position < 0:
        return page, None
    return page.slice(0, position), page["key"][position].as_py().partition("/")[0]


def _new(directory: str | None, met: Sequence[str]) -> tuple[str, ...]:
    return () if directory is None or directory in met else (directory,)
