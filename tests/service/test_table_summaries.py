"""A summary to which commits were applied has the numbers of a table that was read as a whole."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehand
from lakehand.assess.inspection import FileFigures, measure, measure_figures
from lakehand.formats.delta.log import summaries
from lakehand.formats.registry import load_format
from lakehand.model.table_summary import NO_FILES, FileEntry, FileNumbers, TableSummary
from lakehand.service.table_summaries import Assessment, assess_summary
from lakehand.settings import Settings
from lakehand.storage import open_store

FORMAT = load_format("delta")
#: Small limits, so that files of a few rows are of every kind.
SETTINGS = Settings({"target_file_bytes": 3000, "automatic_min_files": 2, "deleted_row_ratio": 0.2})
DELETION_VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(generator, count):
    ids = [generator.randrange(10**9) for _ in range(count)]
    days = [f"2026-11-{one % 3 + 1:02}" for one in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.string())})


class History:
    """A table with a random history, and a summary that follows it."""

    def __init__(self, path, seed, *, partition_by=(), properties=None):
        self.path, self.generator = path, random.Random(seed)
        schema = rows(self.generator, 0).schema
        self.table = lakehand.create_table(
            path, schema, partition_by=partition_by, properties=properties, engine="local"
        )
        self.store = open_store(str(path))
        self.summary = None
        self.updates = 0

    def step(self):
        steps = [self.append, self.append, self.delete, self.compact, self.restore, self.checkpoint]
        if not DeltaTable(self.path).protocol().reader_features:
            steps += [self.append_delta_rs, self.overwrite, self.optimize, self.set_property]
        self.generator.choice(steps)()

    def append(self):
        self.table.append(rows(self.generator, self.generator.choice((1, 20, 400))))

    def append_delta_rs(self):
        write_deltalake(self.path, rows(self.generator, 30), mode="append")

    def overwrite(self):
        write_deltalake(self.path, rows(self.generator, 40), mode="overwrite")

    def delete(self):
        self.table.delete(where=f"id % 5 = {self.generator.randrange(5)}")

    def compact(self):
        self.table.compact(min_files=2, quiet_period="0s", engine="local")

    def optimize(self):
        DeltaTable(self.path).optimize.compact()

    def restore(self):
        version = self.table.snapshot().version
        self.table.restore(version=self.generator.randint(max(0, version - 3), version))

    def checkpoint(self):
        self.table.checkpoint()

    def set_property(self):
        interval = str(self.generator.randint(2, 30))
        DeltaTable(self.path).alter.set_table_properties({"delta.checkpointInterval": interval})

    def follow(self):
        """Apply what has come since the last time, and compare it with the whole table."""
        known = None if self.summary is None else self.summary.version
        look = FORMAT.look(self.store, known=known)
        snapshot = self.table.snapshot()
        full = FORMAT.summarize(snapshot, look)
        updated = FORMAT.update_summary(self.store, look, self.summary)
        self.updates += updated is not None
        self.summary = updated or full
        assert same(self.summary) == same(full)
        assert self.summary.files == full.files
        in_force = SETTINGS.with_properties(snapshot.properties)
        figures = FileFigures.of_summary(self.summary)
        commits = self.summary.commits_since_checkpoint
        measures = measure_figures(figures, commits_since_checkpoint=commits, settings=in_force)
        assert measures == measure(snapshot, settings=in_force)
        assert comparable(self.summary) == comparable(full)


def same(summary):
    """Return what must be the same; what was removed before is not known to the whole table."""
    document = summary.to_json()
    for name in ("removed_file_count", "removed_bytes", "commits_applied", "is_clustered"):
        document.pop(name)
    return document


def comparable(summary):
    plain = replace(summary, removed_file_count=0, removed_bytes=0, is_clustered=False)
    found = assess_summary(plain, SETTINGS).to_json()
    found["shown"]["partitions"].sort(key=str)
    return found


#: Each kind of table once; more of them take too long for every run.
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_applied_commits_give_the_numbers_of_the_whole_table(tmp_path, seed):
    history = History(
        tmp_path / "t",
        seed,
        partition_by=("day",) if seed % 2 else (),
        properties=DELETION_VECTORS if seed % 4 >= 2 else None,
    )
    history.follow()
    for _ in range(14):
        history.step()
        if history.generator.random() < 0.7:
            history.follow()
    history.follow()
    assert history.updates > 5


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path / "t", 1)
    for _ in range(4):
        made.append()
    made.follow()
    return made


def update(history):
    look = FORMAT.look(history.store, known=history.summary.version)
    return FORMAT.update_summary(history.store, look, history.summary)


def test_an_update_reads_only_new_commits(history, monkeypatch):
    read = []
    monkeypatch.setattr(
        summaries,
        "read_commit",
        lambda store, version: read.append(version) or _read_commit(store, version),
    )
    history.append()
    assert update(history).version == 5
    assert read == [5]
    history.summary = update(history)
    read.clear()
    assert same(update(history)) == same(history.summary)
    assert read == []


_read_commit = summaries.read_commit


def test_what_was_removed_is_counted(history):
    before = history.summary.files.sizes.sum()
    history.overwrite()
    updated = update(history)
    assert (updated.removed_file_count, updated.removed_bytes) == (4, before)


def test_commits_that_are_gone_need_the_whole_table(history):
    history.append()
    history.checkpoint()
    history.append()
    log = history.path / "_delta_log"
    (log / f"{5:020}.json").unlink()
    assert update(history) is None
    history.follow()
    history.append()
    assert update(history).version == 7


def test_a_table_that_was_replaced_is_not_merged_into_the_summary_of_the_old_one(history):
    shutil.rmtree(history.path)
    other = History(history.path, 2)
    for _ in range(6):
        other.append()
    other.summary = history.summary
    updated = update(other)
    assert updated.table_id != history.summary.table_id
    assert len(updated.files) == 6
    other.summary = replace(updated, mark="another")
    other.checkpoint()
    (history.path / "_delta_log" / f"{0:020}.json").unlink()
    assert update(other) is None


def test_a_new_protocol_and_other_partition_columns_need_the_whole_table(history):
    write_deltalake(
        history.path,
        rows(history.generator, 5),
        mode="overwrite",
        partition_by=["day"],
        schema_mode="overwrite",
    )
    assert update(history) is None
    history.follow()
    log = history.path / "_delta_log" / f"{history.summary.version + 1:020}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
    log.write_text(json.dumps({"protocol": protocol}) + "\n")
    assert update(history) is None


def test_a_table_with_unsupported_features_is_refused(history):
    entry = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}
    commit = history.path / "_delta_log" / f"{5:020}.json"
    commit.write_text(json.dumps(entry) + "\n")
    with pytest.raises(lakehand.errors.RefusedError):
        FORMAT.update_summary(history.store, FORMAT.look(history.store))


def test_a_commit_that_contradicts_itself_and_paths_elsewhere_need_the_whole_table(history):
    add = {"path": "/elsewhere/a.parquet", "size": 1, "partitionValues": {}}
    commit = history.path / "_delta_log" / f"{5:020}.json"
    commit.write_text(json.dumps({"add": add}) + "\n")
    assert update(history) is None
    add["path"] = "a.parquet"
    commit.write_text(json.dumps({"add": add}) + "\n" + json.dumps({"remove": add}) + "\n")
    assert update(history) is None


def test_tables_with_very_many_files_are_not_kept(history, monkeypatch):
    monkeypatch.setattr(summaries, "MOST_FILES", 3)
    assert update(history) is None
    look = FORMAT.look(history.store)
    full = FORMAT.summarize(history.table.snapshot(), look)
    assert (full.files, full.mark) == (NO_FILES, "")


def test_one_listing_per_look(history, monkeypatch):
    calls = []
    for name in ("list", "get", "exists"):
        original = getattr(type(history.store), name)
        monkeypatch.setattr(
            type(history.store),
            name,
            lambda self, *args, _name=name, _original=original, **options: (
                calls.append(_name) or _original(self, *args, **options)
            ),
        )
    look = FORMAT.look(history.store, known=history.summary.version)
    assert (look.version, look.mark) == (history.summary.version, history.summary.mark)
    assert calls == ["list"]


def test_a_summary_is_stored_and_read_back(history):
    document = json.loads(json.dumps(history.summary.to_json()))
    read = TableSummary.from_json(document, history.summary.files.encode())
    assert read == history.summary
    assessed = assess_summary(read, SETTINGS)
    assert Assessment.from_json(json.loads(json.dumps(assessed.to_json()))) == assessed
    with pytest.raises(ValueError, match="not a summary"):
        TableSummary.from_json({}, b"")
    with pytest.raises(ValueError, match="not a summary"):
        FileNumbers.decode(b"x")


def test_partitions_without_files_are_forgotten():
    files = NO_FILES
    for day in range(100):
        entry = FileEntry(key=day, bytes=1, rows=1, deleted=0, partition=f"[{day}]")
        files = files.apply({day: entry, max(day - 1, 0): None} if day else {day: entry})
    assert len(files) == 1
    assert len(files.partition_names) < 30
    assert files.partition_names[files.partitions[0]] == "[99]"


def test_the_numbers_of_a_table_name_its_candidates(tmp_path):
    made = History(tmp_path / "t", 3, partition_by=("day",))
    for _ in range(4):
        made.append()
    made.follow()
    assessed = assess_summary(made.summary, SETTINGS)
    numbers, shown = assessed.numbers, assessed.shown
    assert numbers.excess_file_count == sum(p["excess_file_count"] for p in shown["partitions"])
    assert all(p["partition"]["day"].startswith("2026-11") for p in shown["partitions"])
    assert sum(one["file_count"] for one in shown["file_sizes"]) == numbers.file_count
    off = SETTINGS.with_call({"auto_compact": False})
    assert assess_summary(made.summary, off).numbers.excess_file_count == 0
