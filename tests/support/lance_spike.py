"""A Lance adapter just deep enough to try `formats/base.py`: plan, run a task, prove, commit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC

import lance
import pyarrow as pa
from lance.file import LanceFileReader
from lance.optimize import Compaction, CompactionTask, RewriteResult

from lakehand.errors import CommitConflictError
from lakehand.formats.base import Capabilities
from lakehand.model.snapshot import Snapshot
from lakehand.model.work import DataFile, Group, Receipt, StagedFile


class LanceFormat:
    name = "lance"

    def detect(self, store) -> bool:
        return any(info.key.startswith("_versions/") for info in store.list("_versions/"))

    def open(self, store) -> LanceTable:
        return LanceTable(store)


class LanceTable:
    capabilities = Capabilities(checkpoints=False, plans_itself=True, copies_bytes=False)

    def __init__(self, store) -> None:
        self.store = store

    def _dataset(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self.store.url, version=version)

    def snapshot(self, *, version=None, timestamp=None, statistics=()) -> Snapshot:
        dataset = self._dataset(version)
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        newest = next(v for v in dataset.versions() if v["version"] == dataset.version)
        files = pa.table(
            {
                "path": [fragment.files[0].path for fragment in fragments],
                "bytes": [sum(f.file_size_bytes for f in m.files) for m in fragments],
                "rows": [fragment.physical_rows for fragment in fragments],
                "deleted_rows": [fragment.num_deletions for fragment in fragments],
                "native": [{"fragment": fragment.id} for fragment in fragments],
            }
        )
        return Snapshot(
            table=self.store.url,
            version=dataset.version,
            at=newest["timestamp"].astimezone(UTC),
            schema=dataset.schema,
            partition_columns=(),
            files=files,
            properties={},
            native=None,
        )

    def native_groups(self, snapshot, policy) -> list[Group]:
        plan = Compaction.plan(self._dataset(snapshot.version), dict(policy))
        return [
            Group(
                id=number,
                inputs=tuple(_data_file(fragment) for fragment in task.fragments),
                reason="planned by Lance",
                native={"task": task.json(), "read_version": plan.read_version},
            )
            for number, task in enumerate(plan.tasks)
        ]

    def worker(self, snapshot) -> LanceWorker:
        return LanceWorker(path=self.store.url, version=snapshot.version)

    def commit(self, change, *, token) -> Receipt:
        rewrites = [
            RewriteResult.from_json(replacement.adds[0].native["rewrite"])
            for replacement in change.replacements
        ]
        try:
            metrics = Compaction.commit(self._dataset(change.base_version), rewrites)
        except Exception as error:
            raise CommitConflictError(
                f"Lance refused the commit: {error}", table=self.store.url
            ) from error
        return Receipt(
            version=self._dataset().version,
            files_added=metrics.fragments_added,
            files_removed=metrics.fragments_removed,
        )


@dataclass(frozen=True)
class LanceWorker:
    path: str
    version: int

    @property
    def schema(self) -> pa.Schema:
        return lance.dataset(self.path, version=self.version).schema

    def read(self, inputs, *, columns=None, where=None, row_identity=False):
        dataset = lance.dataset(self.path, version=self.version)
        fragments = [dataset.get_fragment(file.native["fragment"]) for file in inputs]
        return dataset.scanner(columns=columns, filter=where, fragments=fragments).to_reader()

    def run_native(self, group, *, stem) -> tuple[StagedFile, ...]:
        # Lance names its own files, so `stem` cannot be used: the ledger must record the names of
        # its outputs instead, as soon as the task knows them.
        task = CompactionTask.from_json(group.native["task"])
        rewrite = task.execute(lance.dataset(self.path, version=self.version)).json()
        fragments = json.loads(rewrite)["new_fragments"]
        return tuple(
            StagedFile(
                path=f"data/{fragment['files'][0]['path']}",
                bytes=sum(file["file_size_bytes"] for file in fragment["files"]),
                rows=fragment["physical_rows"],
                native={"rewrite": rewrite},
            )
            for fragment in fragments
        )

    def read_staged(self, files, *, row_identity=False):
        tables = [
            LanceFileReader(f"{self.path}/{file.path}").read_all().to_table() for file in files
        ]
        return pa.concat_tables(tables).to_reader()


def _data_file(fragment) -> DataFile:
    return DataFile(
        path=fragment.files[0].path,
        bytes=sum(file.file_size_bytes for file in fragment.files),
        rows=fragment.physical_rows,
        deleted_rows=fragment.num_deletions,
        native={"fragment": fragment.id},
    )
