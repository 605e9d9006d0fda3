"""Objects of S3 made of ranges of other objects, which the store copies by itself.

A multipart upload takes ranges of existing objects as parts (UploadPartCopy). Every part but the
last has at least 5 MiB, so ranges that are too short travel through this process.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from lakehand import errors
from lakehand.observe.steps import Step, reached
from lakehand.storage.location import join_key
from lakehand.storage.objects import NotComposable, ObjectWriter
from lakehand.storage.s3_requests import Answer, Request, S3Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The least that S3 takes as a part, unless it is the last one.
MIN_PART_BYTES = 5 * 2**20
#: Parts of this size are sent; a longer range is copied in several parts, which takes less time.
_SENT_PART_BYTES = 8 * 2**20
_COPIED_PART_BYTES = 256 * 2**20
_PARALLEL_PARTS = 8
_MAX_PARTS = 10_000
_CHECKSUM, _CHECKSUM_TYPE = "x-amz-checksum-crc64nvme", "x-amz-checksum-type"
_CRC_BYTES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRange:
    """A range of an object whose bytes were read or written by this process."""

    start: int
    length: int
    #: CRC-64/NVME.
    crc64: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedRange:
    """A range of a composed object that the store copied from another one."""

    start: int
    length: int
    #: Key of the other object, and where the range begins there.
    source: str
    source_start: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredObject:
    """An object as the store describes it, with the checksum that the store has of all of it."""

    key: str
    bytes: int
    etag: str
    #: CRC-64/NVME.
    crc64: int


class S3Composer:
    """Describes objects of one root, and composes new ones. Its connections end with the block."""

    def __init__(self, requests: S3Requests, root: str) -> None:
        self._requests = requests
        self._root = root

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()

    def _name(self, key: str) -> str:
        return join_key(self._root, key)

    def describe(self, key: str) -> StoredObject:
        """Return what the store has of an object; NotComposable if it has no checksum of it."""
        headers = {"x-amz-checksum-mode": "ENABLED"}
        request = Request(method="HEAD", name=self._name(key), operation="head", headers=headers)
        found = self._requests.send(request).headers
        crc64 = _checksum(found.get(_CHECKSUM), found.get(_CHECKSUM_TYPE))
        etag, size = found.get("etag"), found.get("content-length")
        if crc64 is None or not etag or size is None:
            raise NotComposable(f"the store has no CRC-64/NVME checksum of {key}")
        return StoredObject(key=key, bytes=int(size), etag=etag, crc64=crc64)

    def open_writer(self, key: str, *, read: Callable[[str, int, int], bytes]) -> ComposingWriter:
        """Open a new object; `read` returns a range (start, length) of an object by its key."""
        return ComposingWriter(key, upload=_Upload(self._requests, self._name, key), read=read)

    def abort_uploads(self, start: str) -> int:
        """Abort unfinished uploads whose keys start with `start`; return how many."""
        return _abort_all(self._requests, self._name(start))


def _checksum(value: str | None, kind: str | None) -> int | None:
    """Return a checksum of a whole object; None if there is none, or it is one of parts."""
    if value is None or kind not in {None, "FULL_OBJECT"}:
        return None
    try:
        found = base64.b64decode(value, validate=True)
    except binascii.Error:
        return None
    return int.from_bytes(found) if len(found) == _CRC_BYTES else None


class _Upload:
    """A multipart upload: parts are sent or copied in any order, then completed or aborted."""

    def __init__(self, requests: S3Requests, name: Callable[[str], str], key: str) -> None:
        self._requests = requests
        self._name = name
        self._key = key
        self._id: str | None = None
        #: Whether an answer to the creation was lost, so that there may be two uploads.
        self._is_doubled = False
        self._bytes = 0
        self._lock = threading.Lock()

    def copy(self, number: int, source: StoredObject, start: int, length: int) -> str:
        """Have the store copy a range of `source`, if that is still the object described."""
        about = self._name(source.key)
        origin = f"/{self._requests.bucket}/{about}"
        headers = {
            "x-amz-copy-source": quote(origin, safe="/-_.~"),
            "x-amz-copy-source-range": f"bytes={start}-{start + length - 1}",
            "x-amz-copy-source-if-match": source.etag,
        }
        self._count(length)
        request = self._part(number, "copy", headers=headers, about=about, copied_bytes=length)
        return _required(self._send(request).element("ETag"), "ETag", "UploadPartCopy")

    def send(self, number: int, data: bytes) -> str:
        self._count(len(data))
        etag = self._send(self._part(number, "put", body=data)).headers.get("etag")
        return _required(etag, "ETag", "UploadPart")

    def _send(self, request: Request) -> Answer:
        """Send a part. That the upload is gone says nothing of the object it is copied from."""
        try:
            return self._requests.send(request)
        except errors.ObjectNotFoundError as error:
            if getattr(error, "store_code", None) != "NoSuchUpload":
                raise
            url = self._requests.url(request.name)
            message = f"{request.operation} failed on {url}: another program aborted the upload"
            raise errors.StorageError(message, path=url, operation=request.operation) from None

    def _part(self, number: int, operation: str, **more: object) -> Request:
        query = {"partNumber": str(number), "uploadId": self._upload_id()}
        return Request(
            method="PUT",
            name=self._name(self._key),
            operation=operation,
            query=query,
            **more,  # type: ignore[arg-type]
        )

    def _count(self, length: int) -> None:
        with self._lock:
            self._bytes += length

    def _upload_id(self) -> str:
        with self._lock:
            if self._id is None:
                self._id = self._create()
                reached(Step.UPLOAD_CREATED)
            return self._id

    def _create(self) -> str:
        # No algorithm is asked for: S3 then computes CRC-64/NVME of what it stores. versitygw
        # returns the checksum of the whole source for a part of it if it is told the algorithm.
        request = Request(
            method="POST", name=self._name(self._key), operation="put", query={"uploads": ""}
        )
        try:
            answer = self._requests.send_once(request)
        except errors.StoreUnreachableError:
            self._is_doubled = True
            answer = self._requests.send(request)
        return _required(answer.element("UploadId"), "UploadId", "CreateMultipartUpload")

    def complete(self, etags: Sequence[str]) -> None:
        """Make the object visible; the caller compares it with what it must be.

        If the answer is lost, the next attempt may find no upload, because the first one succeeded.
        """
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(etags, start=1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        request = Request(
            method="POST",
            name=self._name(self._key),
            operation="put",
            query={"uploadId": self._upload_id()},
            body=body,
            # Other stores than Amazon's put the object together now.
            copied_bytes=self._bytes,
        )
        with suppress(errors.ObjectNotFoundError):
            self._requests.send(request)
        self._abort_doubles()

    def abort(self) -> None:
        """Delete the parts."""
        if self._id is not None:
            _abort(self._requests, self._name(self._key), self._id)
        self._abort_doubles()

    def _abort_doubles(self) -> None:
        """Abort an upload without parts, if we may: it does not change what was uploaded."""
        if self._is_doubled:
            with suppress(NotComposable, errors.StorageError):
                _abort_all(self._requests, self._name(self._key))


_UPLOAD = re.compile(rb"<Upload>(.*?)</Upload>", re.DOTALL)


def _abort_all(requests: S3Requests, start: str) -> int:
    """Abort uploads whose names start with `start`, page by page.

    Names are not asked for in quoted form: Amazon writes a space as a plus then, and versitygw
    does not quote at all.
    """
    aborted, after = 0, dict[str, str]()
    while True:
        query = {"uploads": "", "prefix": start, **after}
        answer = requests.send(Request(method="GET", name="", operation="list", query=query))
        found = [Answer(headers={}, body=each) for each in _UPLOAD.findall(answer.body)]
        for upload in found:
            name = _required(upload.element("Key"), "Key", "ListMultipartUploads")
            upload_id = _required(upload.element("UploadId"), "UploadId", "ListMultipartUploads")
            _abort(requests, name, upload_id)
            after = {"key-marker": name, "upload-id-marker": upload_id}
        aborted += len(found)
        if not found or answer.element("IsTruncated") != "true":
            return aborted


def _abort(requests: S3Requests, name: str, upload_id: str) -> None:
    query = {"uploadId": upload_id}
    with suppress(errors.ObjectNotFoundError):
        requests.send(Request(method="DELETE", name=name, operation="abort", query=query))


def _required(value: str | None, what: str, request: str) -> str:
    if not value:
        raise NotComposable(f"the store answered {request} without {what}")
    return value


class ComposingWriter(ObjectWriter):
    """Writes an object of bytes and of ranges of other objects.

    Nothing is visible before `close`. Parts are sent and copied while more are added.
    """

    def __init__(
        self, key: str, *, upload: _Upload, read: Callable[[str, int, int], bytes]
    ) -> None:
        super().__init__(key)
        self._upload = upload
        self._read = read
        self._pending = bytearray()
        self._parts: list[Future[str]] = []
        self._pool = ThreadPoolExecutor(_PARALLEL_PARTS, thread_name_prefix="part")
        self._room = threading.Semaphore(_PARALLEL_PARTS)
        self._failure: BaseException | None = None

    def copy(self, source: StoredObject, start: int, length: int) -> int:
        """Add a range; return how many bytes at its start travelled, as they were too few to copy.

        Those bytes were read from the source; the rest is copied by the store.
        """
        travelled = 0
        missing = MIN_PART_BYTES - len(self._pending) if self._pending else 0
        if length - max(missing, 0) < MIN_PART_BYTES:
            travelled = length
        elif missing > 0:
            travelled = missing
        if travelled:
            self.write(self._read(source.key, start, travelled))
        if travelled < length:
            self._send_pending()
            for first, size in _cut(start + travelled, length - travelled):
                self._add(partial(self._upload.copy, source=source, start=first, length=size))
            self._position += length - travelled
        return travelled

    def _write(self, view: memoryview) -> None:
        while view.nbytes:
            room = _SENT_PART_BYTES - len(self._pending)
            self._pending += view[:room]
            view = view[room:]
            # A full part is sent when more follows, so that the last one is never too short.
            if view.nbytes:
                self._send_pending()

    def _send_pending(self) -> None:
        if self._pending:
            self._add(partial(self._upload.send, data=bytes(self._pending)))
            self._pending.clear()

    def _add(self, send: Callable[..., str]) -> None:
        number = len(self._parts) + 1
        if number > _MAX_PARTS:
            raise NotComposable(f"it would have more than {_MAX_PARTS} parts")
        self._room.acquire()
        if self._failure is not None:
            raise self._failure
        part = self._pool.submit(send, number)
        part.add_done_callback(self._end)
        self._parts.append(part)

    def _end(self, part: Future[str]) -> None:
        if not part.cancelled():
            self._failure = self._failure or part.exception()
        self._room.release()

    def _commit(self) -> None:
        self._send_pending()
        etags = [part.result() for part in self._parts]
        reached(Step.UPLOAD_FILLED)
        self._upload.complete(etags)
        self._pool.shutdown()

    def _discard(self) -> None:
        # Parts in flight would arrive after the abort, and stay.
        self._pool.shutdown(wait=True, cancel_futures=True)
        with suppress(NotComposable, errors.StorageError):
            self._upload.abort()


def _cut(start: int, length: int) -> Iterator[tuple[int, int]]:
    """Divide a range into even parts that are not too long."""
    count = -(-length // _COPIED_PART_BYTES)
    ends = [start + length * number // count for number in range(count + 1)]
    for first, end in pairwise(ends):
        yield first, end - first
