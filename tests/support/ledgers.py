"""A table that keeps its versions in memory, for tests of ledger and fate alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehand.errors import CommitConflictError
from lakehand.model.retention import Protection
from lakehand.model.snapshot import Snapshot
from lakehand.model.work import Change, DataFile, Group, GroupResult, Proof, Receipt, StagedFile
from lakehand.runs import Run

if TYPE_CHECKING:
    from lakehand.observe.clock import ManualClock
    from lakehand.storage import Store


@dataclass
class LedgerTable:
    """Just enough of a FormatTable: live paths, and commits that name their inputs."""

    store: Store
    live: dict[str, DataFile] = field(default_factory=dict)
    #: Token of each version after 0.
    tokens: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    #: Every path that some version refers to.
    ever_live: set[str] = field(default_factory=set)
    #: What the newest version refers to beside files of rows.
    belongings: set[str] = field(default_factory=set)

    @classmethod
    def with_files(cls, store: Store, *paths: str) -> LedgerTable:
        for path in paths:
            store.put(path, path.encode())
        files = (DataFile(path=path, bytes=len(path), rows=1) for path in paths)
        return cls(store=store, live={file.path: file for file in files}, ever_live=set(paths))

    def snapshot(self) -> Snapshot:
        return Snapshot(
            table=self.store.url,
            version=len(self.tokens),
            at=datetime(2026, 1, 1, tzinfo=UTC),
            schema=pa.schema([("id", pa.int64())]),
            partition_columns=(),
            files=pa.table({"path": pa.array(list(self.live), pa.string())}),
            properties=self.properties,
            native=dict(self.live),
        )

    def protected(self, *, since: datetime) -> Protection:
        keys = pa.chunked_array([pa.array([*self.live, *self.belongings], pa.string())])
        none = pa.chunked_array([], pa.string())
        versions = {"oldest_version": len(self.tokens), "newest_version": len(self.tokens)}
        return Protection(**versions, keys=keys, pinned_keys=none, names=none)

    def data_files(self, snapshot: Snapshot, rows: list[int]) -> tuple[DataFile, ...]:
        paths = snapshot.files["path"].to_pylist()
        return tuple(snapshot.native[paths[row]] for row in rows)

    def commit(self, change: Change, *, token: str) -> Receipt:
        kept = [item for item in change.replacements if self._is_live(item.removes)]
        dropped = tuple(item.group for item in change.replacements if item not in kept)
        if not kept:
            raise CommitConflictError("every group lost")
        for item in kept:
            for file in item.removes:
                del self.live[file.path]
            self.live |= {
                file.path: DataFile(path=file.path, bytes=file.bytes, rows=1) for file in item.adds
            }
        self.tokens.append(token)
        self.ever_live |= set(self.live)
        return Receipt(version=len(self.tokens), dropped=dropped)

    def _is_live(self, files: tuple[DataFile, ...]) -> bool:
        return all(self.live.get(file.path) == file for file in files)

    def find_commit(self, token: str, *, after: int) -> int | None:
        versions = enumerate(self.tokens, start=1)
        return next(
            (number for number, known in versions if known == token and number > after), None
        )

    def groups(self, *paths: str) -> list[Group]:
        """Return one group for each live path."""
        return self.groups_from(0, *paths)

    def groups_from(self, first: int, *paths: str) -> list[Group]:
        """Return one group for each of those paths that are live, numbered from `first`."""
        live = [self.live[path] for path in paths if path in self.live]
        return [Group(id=number, inputs=(file,)) for number, file in enumerate(live, start=first)]


def start_run(table: LedgerTable, groups: list[Group], clock: ManualClock) -> Run:
    plan = {"operation": "compact", "groups": len(groups)}
    return Run.start(table.store, plan, snapshot=table.snapshot(), clock=clock)


def write_output(run: Run, group: Group, *, data: bytes = b"rows", parts: int = 1) -> GroupResult:
    """Do what one task, or one for each part, does up to the result: reserve, then write."""
    stems = [run.reserve(group.id, directory="") for _ in range(parts)]
    paths = [f"{stem}-0.parquet" for stem in stems]
    for path in paths:
        run.store.put(path, data)
    rows = sum(file.rows or 0 for file in group.inputs)
    outputs = tuple(
        StagedFile(path=path, bytes=len(data), rows=0 if number else rows)
        for number, path in enumerate(paths)
    )
    proof = Proof(kind="counts", rows=rows, digest=None, bytes=0, algorithm="none", engine="none")
    return GroupResult(group=group.id, attempt=stems[0], outputs=outputs, proof=proof)


def do_group(run: Run, group: Group, *, parts: int = 1) -> GroupResult:
    return run.record(write_output(run, group, parts=parts), group=group)
