"""One trial: its table beside a model of what was acknowledged, compared after every round.

Other readers than lakehand are asked: delta-rs, for Lance tables pylance, and delta-spark if there
is one.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable as DeltaRsTable
from deltalake import QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

import lakehand
from campaign.rounds import BLOCK_IDS, Round, Trial, Verb
from campaign.shapes import differing_columns
from campaign.stores import delta_rs_options
from campaign.verbs import (
    Durations,
    Ended,
    Place,
    Process,
    acknowledged,
    rows_of,
    run_round,
    schema_of,
)
from campaign.writers import FIRST_ID, Writers
from lakehand.errors import LakehandError
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor
from lakehand.storage import open_store
from support.later_vacuums import vacuum_later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lakehand.model.work import DataFile
    from support.oracle import Oracle

#: Errors after which a verb has changed nothing, for certain.
UNCHANGED = frozenset({"CONFLICT", "REPLAN", "RUN_TAKEN", "PROOF_FAILED", "REFUSED"})
PROPERTIES = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "changes": {"delta.enableChangeDataFeed": "true"},
    "row_ids": {"delta.enableRowTracking": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "checksums": {"delta.checkpointPolicy": "v2"},
}
#: delta-rs does not write to tables with these.
_NOT_FOR_DELTA_RS = {"vectors", "row_ids", "mapped", "checksums", "changes"}
_Files = dict[str, tuple[int, int, int]]
#: Verbs that write rows.
_WRITING = ("upsert", "merge", "hot", "append", "sink")
#: When a sink has last vacuumed, which stays.
_VACUUMED = "_lakehand/vacuumed.json"
#: Kills of the vacuums at the end.
_LAST_KILLS = 3


class TrialError(AssertionError):
    """Rows differ from the model, or something else happened that may not."""


class Model:
    """The rows that must be there: a value for each id. Verbs change whole blocks."""

    def __init__(self, values: dict[int, int] | None = None) -> None:
        self.values = values or {}

    def after(self, verb: Verb, count: int | None = None) -> Model:
        """Return the rows after a verb; of several commits or changes after the first `count`."""
        values = dict(self.values)
        if verb.name == "delete":
            values = {i: v for i, v in values.items() if i // BLOCK_IDS not in verb.blocks}
        elif verb.name in _WRITING:
            blocks = verb.blocks[:count]
            given = None if verb.name in {"append", "sink"} else verb.value
            values.update(_values_of(rows_of(blocks, given)))
        return Model(values)

    def append(self, blocks: tuple[int, ...]) -> None:
        self.values.update(_values_of(rows_of(blocks)))


def _is_repeated(ended: Ended) -> bool:
    """Return whether a call was killed, or given up because the store failed."""
    return ended.outcome == "killed" or bool(ended.lost) or bool(ended.code and ended.faults)


def _values_of(rows: pa.Table) -> dict[int, int]:
    return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


class Subject:
    """The table of a trial, its model, and what was counted."""

    def __init__(
        self,
        trial: Trial,
        place: Place,
        folder: Path,
        durations: Durations,
        *,
        writing: Place | None = None,
        oracle: Oracle | None = None,
    ) -> None:
        self.trial, self.place, self.folder = trial, place, folder
        #: The same table, without faults.
        self.direct = writing or place
        self.counts: Counter[str] = Counter()
        self._durations, self._oracle = durations, oracle
        self._model = Model()
        self._chance = random.Random(trial.seed)
        #: Called at the moment of a round whose fate is `disturb`.
        self.disturb: Callable[[], None] = lambda: None
        #: Starts the process of a verb.
        self.start: Callable[..., Process] = Process
        #: Something is short while a verb runs.
        self.shortage: Callable[[], AbstractContextManager[None]] = nullcontext
        #: Writers that run beside all rounds.
        self.beside: Writers | None = None
        #: Where the files of the table are, if they can be compared.
        self.files: Path | None = None if self.place.memory else Path(self.direct.uri)
        self._seen: tuple[_Files, Counter[tuple[int, int]]] = ({}, Counter())
        #: Rows by version, and row ids by id.
        self._versions: dict[int, dict[int, int]] = {}
        self._row_ids: dict[int, int] = {}

    def add_writers(self) -> None:
        """Let writers run beside all rounds: delta-rs if it can write to such a table."""
        is_plain = not _NOT_FOR_DELTA_RS.intersection(self.trial.traits)
        self.beside = Writers(
            self.direct,
            self.folder,
            engines=("delta-rs" if is_plain else "append", "append", "sink"),
            commits=self.trial.commits,
        )

    def create(self) -> None:
        interval = 4 if self.beside is None else self._chance.choice([25, 60, 120])
        properties: dict[str, str] = {"delta.checkpointInterval": str(interval)}
        for trait in self.trial.traits:
            properties.update(PROPERTIES.get(trait, {}))
        lakehand.create_table(
            self.direct.uri,
            schema_of(self.place.shape),
            format="lance" if self.place.is_lance else "delta",
            properties={} if self.place.is_lance else properties,
            partition_by=["part"] if {"partitioned", "scattered"} & {*self.trial.traits} else (),
            storage_options=self.direct.storage or None,
        )

    # Rounds

    def run(self) -> None:
        with self.beside or nullcontext():
            self._run_rounds()
        if self.beside is not None:
            self.counts.update(self.beside.counts())
        self._check("the last round")
        self._check_history()
        if not self.place.is_lance:
            self._clean_up()
        self._check_writers(is_last=True)

    def _run_rounds(self) -> None:
        for number, one in enumerate(self.trial.rounds):
            self._append(one.before)
            place = replace(self.place, limits=self._limits()) if self._is_short() else self.place
            for repetition in range(1 + one.again):
                if place.fault_seed is not None:
                    seed = self.trial.seed * 10_000 + number * 100 + repetition
                    place = replace(place, fault_seed=seed)
                ended = self._run_verb(one.repeated(repetition) if repetition else one, place)
                if not _is_repeated(ended):
                    break
            if one.verb.name == "sink" and ended.outcome != "done":
                self._finish_sink(one.verb)
            if number % 3 == 2:
                self._check(f"round {number} ({one.verb.name}, {one.fate})")
                self._check_writers(is_last=False)

    def _is_short(self) -> bool:
        return self.trial.kind == "local" and self._chance.random() < 0.15

    def _limits(self) -> dict[str, int]:
        if self._chance.random() < 0.5:
            return {"file_bytes": self._chance.choice([0, 200, 1_000, 3_000])}
        return {"files": self._chance.choice([12, 20, 40, 64])}

    def _append(self, blocks: tuple[int, ...]) -> None:
        for block in blocks:
            self._append_one(block)
            self._model.append((block,))

    def _append_at_once(self, blocks: tuple[int, ...]) -> None:
        """Append each block from a writer of its own, all at the same time."""
        with ThreadPoolExecutor(max(len(blocks), 1)) as writers:
            for done in [writers.submit(self._append_one, block) for block in blocks]:
                done.result()

    def _append_one(self, block: int) -> None:
        self.counts["writer_commits"] += 1
        is_plain = not _NOT_FOR_DELTA_RS.intersection(self.trial.traits)
        if is_plain and not self.direct.storage and not self.place.is_lance and block % 2:
            append = partial(write_deltalake, self.direct.uri, mode="append")
        else:
            append = partial(self.direct.open().append, writer_id=f"writer-{block}", epoch=1)
        for _ in range(20):
            try:
                append(rows_of([block], shape=self.place.shape))
            except (LakehandError, CommitFailedError) as error:
                if not getattr(error, "retryable", True):
                    raise
            else:
                return
        raise TrialError(f"writers cannot append block {block}")

    def _run_verb(self, one: Round, place: Place) -> Ended:
        before, after = Model(dict(self._model.values)), one.verb
        with self.shortage():
            ended = run_round(
                place,
                one,
                self.folder,
                self._durations,
                partial(self._append_at_once, one.meanwhile),
                disturb=self.disturb,
                start=self.start,
            )
        self._count(one, ended)
        if ended.outcome == "defect":
            raise TrialError(f"{one.verb}: {ended.text}")
        self._model = self._outcome(before, after, ended, one.meanwhile)
        if one.verb.name == "hot":
            self._finish_hot(before, one, ended)
        return ended

    def _count(self, one: Round, ended: Ended) -> None:
        self.counts["operations"] += 1
        self.counts[f"verb {one.verb.name}"] += 1
        is_short = self.trial.kind in {"local", "disk"} and ended.code is not None
        self.counts["faults"] += ended.faults + is_short
        steps = [f"after {ended.step or 'its start'}"] if ended.outcome == "killed" else []
        for killed in ended.lost or steps:
            self.counts["kills"] += 1
            self.counts[f"killed {killed}"] += 1
        if not steps and one.fate in {"stop", "disturb"}:
            self.counts["stops" if one.fate == "stop" else "server_kills"] += 1
        if ended.code:
            self.counts[f"error {ended.code}"] += 1

    def _outcome(
        self, before: Model, verb: Verb, ended: Ended, meanwhile: tuple[int, ...]
    ) -> Model:
        """Return the rows that are there, if they are those of an outcome that is allowed."""
        last = len(verb.blocks)
        if ended.outcome == "done":
            allowed = [before.after(verb)]
        elif ended.code in UNCHANGED and verb.name not in {"sink", "hot"}:
            allowed = [before]
        elif verb.name in {"sink", "hot"}:
            allowed = [before.after(verb, count) for count in range(last + 1)]
        else:
            allowed = [before, before.after(verb)]
        for model in allowed:
            model.append(meanwhile)
        return self._one_of(allowed, f"{verb.name} {asdict(ended)}")

    def _one_of(self, allowed: list[Model], when: str) -> Model:
        """Return the model that has the rows of the table."""
        found = self._read_again()
        for model in allowed:
            if found == Counter(model.values.items()):
                return model
        difference = _difference(found, Counter(allowed[-1].values.items()))
        raise TrialError(f"{when}: {difference}")

    def _finish_sink(self, verb: Verb) -> None:
        """Write the epochs again, as a job does that is started again; nothing may be doubled."""
        ending = Round(verb=verb, fate="end", moment=0)
        for _ in range(5):
            ended = run_round(self.direct, ending, self.folder, self._durations, lambda: None)
            if ended.outcome == "done":
                break
        else:
            raise TrialError(f"the sink does not go on: {ended}")
        self._model = self._model.after(verb)

    def _finish_hot(self, before: Model, one: Round, ended: Ended) -> None:
        """Open the hot table again, if it was killed: what it had acknowledged must be there."""
        count = acknowledged(self.direct)
        if ended.outcome == "done":
            return
        recovery = Round(verb=Verb(name="recover_hot"), fate="end", moment=0)
        told = run_round(self.direct, recovery, self.folder, self._durations, lambda: None)
        if told.outcome != "done":
            raise TrialError(f"the hot table does not open: {told}")
        allowed = [before.after(one.verb, some) for some in range(count, len(one.verb.blocks) + 1)]
        for model in allowed:
            model.append(one.meanwhile)
        self._model = self._one_of(allowed, f"hot, {count} acknowledged, {asdict(ended)}")

    # Checks

    def _read_again(self) -> Counter[tuple[int, int]]:
        """Return the rows as `_read` does; those of the last time if readers must find the same.

        They do if each file that was there is the same file, and none is new in the log.
        """
        if self.files is None:
            return self._read()
        files, (before, found) = _look_at(self.files), self._seen
        news = files.keys() - before.keys()
        if before and before.items() <= files.items() and not any(map(_is_of_log, news)):
            self.counts["unchanged"] += 1
            return found
        found = self._read()
        # As it was before the rows were read: what changed since then is seen the next time.
        self._seen = files, found
        return found

    def _read(self, version: int | None = None) -> Counter[tuple[int, int]]:
        """Return ids and values as a reader finds them that shares no code with lakehand."""
        if self.place.is_lance:
            import lance

            rows = lance.dataset(self.direct.uri, version=version).to_table()
        else:
            rows = self._read_by_delta_rs(self._own_rows(), version)
        self.counts["rows_compared"] += rows.num_rows
        return Counter(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def _read_by_delta_rs(self, where: str | None, version: int | None = None) -> pa.Table:
        options = delta_rs_options(self.direct.storage)
        table = DeltaRsTable(self.direct.uri, version=version, storage_options=options)
        text = f"SELECT id, value FROM t WHERE {where or 'true'}"
        return pa.table(QueryBuilder().register("t", table).execute(text).read_all())

    def _own_rows(self) -> str | None:
        """Return the condition for rows that are not those of writers beside the rounds."""
        return f"id < {FIRST_ID}" if self.beside else None

    def _check_writers(self, *, is_last: bool) -> None:
        """Look for all that writers beside the rounds have committed, as delta-rs reads it."""
        if self.beside is None:
            return
        self.beside.raise_failure()
        acknowledged = self.beside.acknowledged()
        where, table = f"id >= {FIRST_ID}", self.direct.open()
        readers = {
            "lakehand": partial(table.to_arrow, columns=["id", "value"], where=where),
            "delta-rs": partial(self._read_by_delta_rs, where),
        }
        for name, read in readers.items():
            rows = read()
            self.counts["rows_compared"] += rows.num_rows
            ids, values = (rows[column].to_numpy() for column in ("id", "value"))
            for error in self.beside.errors(ids, values, acknowledged, is_last=is_last):
                raise TrialError(f"writers, read by {name}: {error}")

    def _check(self, when: str) -> None:
        table = self.direct.open()
        version = table.version()
        expected = Counter(self._model.values.items())
        rows = table.to_arrow(columns=["id", "value"], version=version, where=self._own_rows())
        found = Counter(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
        self.counts["rows_compared"] += rows.num_rows
        if found != expected:
            raise TrialError(f"{when}, read by lakehand: {_difference(found, expected)}")
        self._versions[version] = dict(self._model.values)
        if self.place.shape is not None:
            self._check_shape(when)
        if "row_ids" in self.trial.traits and not self.place.storage:
            self._check_row_ids(when)

    def _check_shape(self, when: str) -> None:
        """Compare all columns of all rows, read by lakehand and by delta-rs."""
        read_by_delta_rs = DeltaRsTable(self.direct.uri).to_pyarrow_table
        for name, read in {
            "lakehand": self.direct.open().to_arrow,
            "delta-rs": read_by_delta_rs,
        }.items():
            if name == "delta-rs" and {"vectors", "mapped"} & {*self.trial.traits}:
                continue  # its Arrow reader does not take these tables
            rows = read()
            self.counts["rows_compared"] += rows.num_rows
            if wrong := differing_columns(self.place.shape, rows):
                raise TrialError(f"{when}, read by {name}: other values of {wrong[:5]}")

    def _check_row_ids(self, when: str) -> None:
        """Compare the ids of rows that no verb has changed since the last look."""
        from support.rows import lakehand_rows

        rows = lakehand_rows(Path(self.direct.uri), row_identity=True)
        names = rows.column_names
        found = dict(zip(rows["id"].to_pylist(), rows[names[-2]].to_pylist(), strict=True))
        if len(set(found.values())) != len(found):
            raise TrialError(f"{when}: a row id is there twice")
        moved = [i for i, row_id in found.items() if self._row_ids.get(i, row_id) != row_id]
        if moved and not self._was_upserted(moved):
            raise TrialError(f"{when}: other row ids than before: {moved[:5]}")
        self._row_ids = found

    def _was_upserted(self, ids: list[int]) -> bool:
        blocks = {
            block
            for one in self.trial.rounds
            if one.verb.name in _WRITING
            for block in one.verb.blocks
        }
        return all(i // BLOCK_IDS in blocks for i in ids)

    def _check_history(self) -> None:
        """Read the versions between rounds again, and the change data feed from each of them."""
        versions = sorted(self._versions)
        for version in self._chance.sample(versions, min(5, len(versions))):
            expected = Counter(self._versions[version].items())
            if (found := self._read(version)) != expected:
                raise TrialError(f"version {version}: {_difference(found, expected)}")
            if "changes" in self.trial.traits:
                self._check_changes(version)
        if self._oracle is not None and not self.direct.storage and not self.place.is_lance:
            where = self._own_rows() or "true"
            found_rows = self._oracle.sql(
                f"SELECT id, value FROM delta.`{self.direct.uri}` WHERE {where}"
            )
            found = Counter((row["id"], row["value"]) for row in found_rows)
            self.counts["rows_compared"] += len(found_rows)
            self.counts["tables_read_by_delta_spark"] += 1
            if found != (expected := Counter(self._model.values.items())):
                raise TrialError(f"read by delta-spark: {_difference(found, expected)}")

    def _check_changes(self, version: int) -> None:
        """Apply the changes after a version to its rows: the result must be the present rows."""
        rows = Counter(self._versions[version].items())
        table = self.direct.open()
        if version < table.version():
            changes = pa.table(table.changes(from_version=version + 1))
            changes = changes.filter(pc.less(changes["id"], FIRST_ID))
            for kind, sign in {
                "insert": 1,
                "update_postimage": 1,
                "delete": -1,
                "update_preimage": -1,
            }.items():
                some = changes.filter(pc.equal(changes["_change_type"], kind))
                pairs = zip(some["id"].to_pylist(), some["value"].to_pylist(), strict=True)
                for pair in pairs:
                    rows[pair] += sign
            self.counts["rows_compared"] += changes.num_rows
        found = Counter({pair: count for pair, count in rows.items() if count})
        if found != (expected := Counter(self._model.values.items())):
            raise TrialError(f"changes since {version}: {_difference(found, expected)}")

    def _clean_up(self) -> None:
        """Vacuum when everything is old, killed a few times; then only needed files are left."""
        for number in range(_LAST_KILLS):
            verb = Verb(name="vacuum", options={"days": 30.0 + number})
            moment = self._chance.random()
            one = Round(verb=verb, fate="kill", moment=moment)
            place = replace(self.place, fault_seed=None, has_spark=False)
            start = Process if self.place.has_spark else self.start
            ended = run_round(place, one, self.folder, self._durations, lambda: None, start=start)
            self._count(one, ended)
            if ended.outcome == "defect":
                raise TrialError(f"vacuum: {ended.text}")
            self._check(f"vacuum {number}")
        store = open_store(self.direct.uri, self.direct.storage or None)
        for days in (50, 60):
            vacuum_later(store, days=days)
        self._check("the last vacuum")
        needed, left = (
            self._needed_files(),
            {info.key for info in store.list() if info.key.endswith((".parquet", ".bin"))},
        )
        surplus = sorted(key for key in left - needed if not key.startswith("_delta_log/"))
        if surplus or needed - left:
            raise TrialError(f"left behind: {surplus[:5]}; missing: {sorted(needed - left)[:5]}")
        ours = sorted(info.key for info in store.list("_lakehand/"))
        if runs := [key for key in ours if "/writers/" not in key and key != _VACUUMED]:
            raise TrialError(f"left behind: {runs[:5]}")

    def _needed_files(self) -> set[str]:
        """Return data files and deletion vectors of the present version, as the log names them."""
        table = self.direct.open()
        handle = table._handle
        snapshot = handle.snapshot()
        return {
            name
            for file in handle.data_files(snapshot, range(snapshot.file_count))
            for name in _names_of(file)
        }


def _look_at(folder: Path) -> _Files:
    """Return what tells whether a file is the same one as before, for each file below a folder."""
    found: _Files = {}
    for inner, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(inner, name)  # noqa: PTH118  often called
            try:
                now = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                continue
            found[path] = (now.st_ino, now.st_size, now.st_mtime_ns)
    return found


def _is_of_log(path: str) -> bool:
    return "/_delta_log/" in path or "/_versions/" in path


def _names_of(file: DataFile) -> Iterator[str]:
    yield file.path
    vector = file.native["add"].get("deletionVector")
    if vector and (path := DvDescriptor.from_json(vector).path):
        yield path


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    missing, surplus = expected - found, found - expected
    return (
        f"{missing.total()} missing {sorted(missing)[:4]}, "
        f"{surplus.total()} surplus {sorted(surplus)[:4]}"
    )
