"""Uploads of unknown length: parts go out while more is written; an abort leaves nothing."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import obstore

from lakehand.storage.objects import ObjectWriter
from lakehand.storage.translate import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore

__all__ = ["StreamingWriter"]

_PART_BYTES = 8 * 2**20
_PARALLEL_PARTS = 4
_POLL_SECONDS = 0.05
#: How long a part may be on its way. One that lands after the abort stays for good.
_LANDING_SECONDS = 2.0


class _AbortedError(Exception):
    """Raised inside the upload, which makes obstore give up the parts that were sent."""


class StreamingWriter(ObjectWriter):
    """Sends parts of 8 MiB from a thread; an object that fits into one part is put at once."""

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

    def _discard(self) -> None:
        self._buffer.clear()
        if self._upload is not None:
            self._offer(_AbortedError())
            self._upload.exception()

    def _send(self, part: bytes | None) -> None:
        if self._upload is None:
            self._upload = self._start()
        if not self._offer(part):
            with translated("put", self._url):
                self._upload.result()

    def _offer(self, part: bytes | _AbortedError | None) -> bool:
        """Hand over `part`; False if the upload has ended and takes none."""
        while self._upload is not None and not self._upload.done():
            try:
                self._parts.put(part, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def _start(self) -> Future[None]:
        upload: Future[None] = Future()
        # A daemon: a writer that nobody closed must not keep the process from ending.
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
        except BaseException as error:  # noqa: BLE001  handed to the thread that writes
            upload.set_exception(error)
        else:
            upload.set_result(None)

    def _take(self) -> Iterator[bytes]:
        last_sent = -_LANDING_SECONDS
        while (part := self._parts.get()) is not None:
            if isinstance(part, _AbortedError):
                # Nobody is told when the parts that were sent have landed.
                time.sleep(max(0.0, last_sent + _LANDING_SECONDS - time.monotonic()))
                raise part
            last_sent = time.monotonic()
            yield part
