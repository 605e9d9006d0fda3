"""Reads whole tables where new commits do not tell all: in one process, one after the other."""

from __future__ import annotations

import base64
import logging
import queue
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import JobStoreError
from lakehand.model.table_summary import TableSummary
from lakehand.observe import get_logger, log_event
from lakehand.service.job_process import JobProcess, ProcessEndedError
from lakehand.service.store.summary_store import SummaryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.store.database import Database
    from lakehand.service.store.table_registry import TableRegistry

#: Nothing is imported from the current directory, which may be a table's.
_COMMAND = (sys.executable, "-P", "-m", "lakehand.service.reader_main")
#: How long a table may take to be read.
_MOST_SECONDS = 600.0
#: The process is replaced after this many tables, and ends after this many seconds without one.
_TABLES_PER_PROCESS, _IDLE_SECONDS = 1000, 30.0
_logger = get_logger(__name__)


class BackgroundReader:
    """Reads tables in the background; when one was read, it is looked at again."""

    def __init__(self, database: Database, tables: TableRegistry) -> None:
        self._summaries = SummaryStore(database)
        self._tables = tables
        self._wanted: queue.SimpleQueue[tuple[int, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._requested: set[int] = set()
        self._process: JobProcess | None = None
        self._thread: threading.Thread | None = None

    def request(self, table_id: int, spec: Mapping[str, Any]) -> None:
        """Let a table be read soon, if that was not requested yet."""
        if table_id in self._requested:
            return
        self._requested.add(table_id)
        self._wanted.put((table_id, spec))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="table-reader", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop, without waiting for a table that is being read."""
        self._wanted.put(None)
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while True:
            try:
                wanted = self._wanted.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._end_process()
                continue
            if wanted is None:
                return
            table_id, spec = wanted
            try:
                self._take_in(table_id, spec, self._answer(spec))
            except JobStoreError as error:
                # The next look requests it again.
                log_event(_logger, logging.WARNING, "summary_not_stored", "%s", error.message)
            finally:
                self._requested.discard(table_id)

    def _answer(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a summary or an error; a process that crashes is an error of its table."""
        try:
            if self._process is None:
                self._process = JobProcess(_COMMAND)
            self._process.send(spec)
            answer = self._process.answer(_MOST_SECONDS)
            reason = f"took longer than {_MOST_SECONDS:.0f} s"
        except ProcessEndedError as error:
            answer, reason = None, str(error)
        if answer is None:
            if self._process is not None:
                self._process.kill()
                self._process = None
            message = f"the process that read {spec['url']} {reason}"
            return {"error": {"code": "JOB_CRASHED", "message": message}}
        if self._process is not None and self._process.jobs >= _TABLES_PER_PROCESS:
            self._end_process()
        return answer

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _take_in(self, table_id: int, spec: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            error = answer["error"]
            message = "%s could not be assessed: %s"
            log_event(
                _logger,
                logging.WARNING,
                "table_not_assessed",
                message,
                spec["url"],
                error["message"],
            )
            version = self._tables.get(table_id).version
            self._summaries.failed(table_id, -1 if version is None else version, error)
        else:
            self._save(table_id, answer)
        self._tables.look_again(table_id)

    def _save(self, table_id: int, answer: Mapping[str, Any]) -> None:
        before = self._summaries.get(table_id).summary
        files = base64.b64decode(answer["files"])
        summary = TableSummary.from_json(answer["summary"], files)
        if before is not None:
            # What was removed before is known from earlier commits only.
            summary = replace(
                summary,
                commits_applied=before.commits_applied + max(0, summary.version - before.version),
                removed_file_count=before.removed_file_count,
                removed_bytes=before.removed_bytes,
            )
        self._summaries.save_read(table_id, summary, answer.get("assessment"))
