"""Real tables, and every way in which a test breaks them."""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyroaring import BitMap64

from lakehand import open_table
from lakehand.formats.delta.deletion_vectors.format import write_deletion_vectors
from lakehand.storage import open_store
from support.checkpoints import put_checkpoint
from support.hand_written_logs import remove
from support.small_tables import commit_by_hand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSIONS = 5
ROWS = 30
FOLDED = 2
_DAY_SECONDS = 24 * 60 * 60


def make_whole_table(path: Path) -> Path:
    """Make a table of five versions with thirty rows and one file each, and a checkpoint at 2."""
    for version in range(VERSIONS):
        write_deltalake(str(path), rows_of(version), mode="append")
        if version == FOLDED:
            open_table(path).checkpoint()
    return path


def rows_of(version: int) -> pa.Table:
    ids = range(version * ROWS, (version + 1) * ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {i}" for i in ids]})


def ids_of(*versions: int) -> list[int]:
    """Return the ids that these versions brought."""
    return [i for version in versions for i in range(version * ROWS, (version + 1) * ROWS)]


def read_ids(path: Path | str) -> list[int]:
    return sorted(open_table(path).to_arrow(columns=["id"])["id"].to_pylist())


def commit_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


def checkpoint_file(path: Path, version: int = FOLDED) -> Path:
    return path / "_delta_log" / f"{version:020}.checkpoint.parquet"


def actions(path: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit_file(path, version).read_text().splitlines()]


def rewrite_commit(path: Path, version: int, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change every action of a commit in place."""
    lines = actions(path, version)
    for line in lines:
        change(line)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    commit_file(path, version).write_text(text)


def state_sizes(path: Path) -> Path:
    """Have the log give the sizes that files have now, so that sizes tell nothing."""
    for commit in (path / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (line["add"] for line in lines if "add" in line):
            file = path / unquote(add["path"])
            add["size"] = file.stat().st_size if file.exists() else add["size"]
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def data_file(path: Path, version: int) -> Path:
    [name] = [line["add"]["path"] for line in actions(path, version) if "add" in line]
    return path / name


# Damage to files


def lose_file(path: Path) -> None:
    data_file(path, 4).unlink()


def replace_file(path: Path) -> None:
    """Put the file of version 3 where that of version 4 was; only sizes are as before."""
    data_file(path, 4).write_bytes(data_file(path, 3).read_bytes())
    state_sizes(path)


def garble_statistics(text: str) -> Callable[[Path], None]:
    def garble(path: Path) -> None:
        rewrite_commit(path, 4, lambda line: line.get("add", {}).update(stats=text))

    garble.__name__ = f"garble_statistics_{len(text)}"
    return garble


def change_file_with_hadoop_sum(path: Path) -> None:
    """Have a checksum as Hadoop writes it beside a file, and then change the file."""
    file = data_file(path, 4)
    content = file.read_bytes()
    parts = (content[start : start + 512] for start in range(0, len(content), 512))
    sums = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
    header = b"crc\x00" + (512).to_bytes(4, "big")
    file.with_name(f".{file.name}.crc").write_bytes(header + sums)
    changed = content.replace(b"delta", b"DELTA")
    assert changed != content
    file.write_bytes(changed)


def cut_file(path: Path) -> None:
    file = data_file(path, 4)
    file.write_bytes(file.read_bytes()[:-100])


def overwrite_footer(path: Path) -> None:
    file = data_file(path, 4)
    file.write_bytes(file.read_bytes()[:-100] + b"x" * 100)


def lose_a_row(path: Path) -> None:
    pq.write_table(rows_of(4).slice(1), data_file(path, 4))


def overwrite_pages(path: Path) -> None:
    file = data_file(path, 4)
    content = bytearray(file.read_bytes())
    content[4:60] = b"\xff" * 56
    file.write_bytes(content)


def narrow_bounds(path: Path) -> None:
    """State a greatest id that is less than some ids of the file."""

    def narrow(line: dict[str, Any]) -> None:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            stats["maxValues"]["id"] = 130
            line["add"]["stats"] = json.dumps(stats)

    rewrite_commit(path, 4, narrow)


def miscount_nulls(path: Path) -> None:
    def miscount(line: dict[str, Any]) -> None:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            stats["nullCount"]["name"] = 7
            line["add"]["stats"] = json.dumps(stats)

    rewrite_commit(path, 4, miscount)


def expect_another_row(path: Path) -> None:
    """State a row more than the file holds."""

    def expect(line: dict[str, Any]) -> None:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            line["add"]["stats"] = json.dumps({**stats, "numRecords": ROWS + 1})

    rewrite_commit(path, 4, expect)


def delete_rows(path: Path, *, inline: str | None = None) -> str:
    """Delete six rows of version 4 by a vector that is in the log; return the file's path.

    The vector is the one of the protocol's appendix: rows 3, 4, 7, 11, 18 and 29.
    """
    [live] = [line["add"] for line in actions(path, 4) if "add" in line]
    text = inline or "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 44, "cardinality": 6}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    remove = {"path": live["path"], "dataChange": True, "deletionTimestamp": 1}
    added = {**live, "deletionVector": vector}
    commit_by_hand(path, {"protocol": protocol}, {"remove": remove}, {"add": added})
    return live["path"]


def delete_by_vectors(path: Path) -> None:
    """Have rows of the table deleted by vectors from now on."""
    [metadata] = [line["metaData"] for line in actions(path, 0) if "metaData" in line]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    commit_by_hand(
        path,
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": {**metadata, "configuration": {"delta.enableDeletionVectors": "true"}}},
    )


def garble_vector(path: Path) -> None:
    delete_rows(path, inline="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{M")


def lose_vector(path: Path) -> None:
    delete_rows(path)

    def outside(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["deletionVector"] |= {
                "storageType": "u",
                "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
                "offset": 1,
            }

    rewrite_commit(path, VERSIONS, outside)


def miscount_vector(path: Path) -> None:
    """State another number of deleted rows than a vector in a file of its own holds."""
    store = open_store(path)
    [vector] = write_deletion_vectors(store, [BitMap64([3, 4, 7, 11, 18, 29])])
    delete_rows(path)

    def miscount(line: dict[str, Any]) -> None:
        if "add" in line:
            line["add"]["deletionVector"] = {**vector.to_json(), "cardinality": 4}

    rewrite_commit(path, VERSIONS, miscount)


def add_twice(path: Path) -> None:
    """Have the file of version 4 once with and once without deleted rows."""
    delete_rows(path)
    lines = [line for line in actions(path, VERSIONS) if "remove" not in line]
    commit_file(path, VERSIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))


# Damage to commits


def append_line(path: Path, version: int, line: dict[str, Any]) -> None:
    text = commit_file(path, version).read_text().rstrip("\n")
    commit_file(path, version).write_text(f"{text}\n{json.dumps(line)}\n")


def lose_commit(version: int) -> Callable[[Path], None]:
    def lose(path: Path) -> None:
        commit_file(path, version).unlink()

    lose.__name__ = f"lose_commit_{version}"
    return lose


def lose_all_commits_from_the_checkpoint_on(path: Path) -> None:
    for version in range(FOLDED, VERSIONS):
        commit_file(path, version).unlink()


def cut_commit(path: Path) -> None:
    file = commit_file(path, 3)
    file.write_bytes(file.read_bytes()[:-20])


def empty_newest_commit(path: Path) -> None:
    commit_file(path, 4).write_bytes(b"")


def say_twice_what_the_table_is(path: Path) -> None:
    [line] = [line for line in actions(path, 0) if "metaData" in line]
    append_line(path, 4, line)
    append_line(path, 4, line)


def contradict(path: Path) -> None:
    [live] = [line["add"] for line in actions(path, 3) if "add" in line]
    append_line(path, 3, {"remove": {"path": live["path"], "dataChange": True}})


def leave_a_line_blank(path: Path) -> None:
    text = commit_file(path, 4).read_text()
    commit_file(path, 4).write_text(text.replace("\n", "\n\n", 1))


def add_twice_in_one_commit(path: Path) -> None:
    [line] = [line for line in actions(path, 4) if "add" in line]
    append_line(path, 4, line)


def turn_back_time(path: Path) -> None:
    """Have a table that keeps time in its commits, with a version that is before the last."""
    features = {"writerFeatures": ["inCommitTimestamp"], "minWriterVersion": 7}
    [metadata] = [line["metaData"] for line in actions(path, 0) if "metaData" in line]
    properties = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": str(VERSIONS),
        "delta.inCommitTimestampEnablementTimestamp": "2000",
    }
    commit_by_hand(
        path,
        {"commitInfo": {"inCommitTimestamp": 2000, "timestamp": 2000}},
        {"protocol": {"minReaderVersion": 1, **features}},
        {"metaData": {**metadata, "configuration": properties}},
    )
    commit_by_hand(path, {"commitInfo": {"inCommitTimestamp": 1000, "timestamp": 1000}})


def list_features(**features: list[str]) -> Callable[[Path], None]:
    def enlist(path: Path) -> None:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        commit_by_hand(path, {"protocol": protocol})

    return enlist


list_an_unknown_feature = list_features(readerFeatures=[], writerFeatures=["timeMachine"])
list_for_readers_only = list_features(readerFeatures=["deletionVectors"], writerFeatures=[])


def forget_metadata(path: Path) -> None:
    """Leave a table whose versions are all there, and whose columns nobody knows."""
    lines = [line for line in actions(path, 0) if "metaData" not in line]
    commit_file(path, 0).write_text("".join(json.dumps(line) + "\n" for line in lines))
    checkpoint_file(path).unlink()
    (path / "_delta_log" / "_last_checkpoint").unlink()


# Damage to what stands for commits


def break_checkpoint(path: Path) -> None:
    checkpoint_file(path).write_bytes(b"PAR1 nothing PAR1")


def leave_file_out_of_checkpoint(path: Path) -> None:
    lines = [line for version in range(FOLDED) for line in actions(path, version)]
    put_checkpoint(open_store(path), FOLDED, lines)


def lose_file_from_commits(path: Path) -> None:
    """Leave a file in the checkpoint that the commits no longer add."""
    lines = [line for line in actions(path, 1) if "add" not in line]
    commit_file(path, 1).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _lose_lines_after_checkpoint(path: Path, *kinds: str) -> None:
    """Write a checkpoint of the newest version; then lose actions from its commit alone."""
    open_table(path).checkpoint()
    lines = [line for line in actions(path, VERSIONS) if not line.keys() & set(kinds)]
    commit_file(path, VERSIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def lose_removal_from_commits(path: Path) -> None:
    removal = remove(data_file(path, 4).name, at_ms=int(time.time() * 1000))
    commit_by_hand(path, {"commitInfo": {}}, removal)
    _lose_lines_after_checkpoint(path, "remove")


def lose_vector_from_commits(path: Path) -> None:
    delete_rows(path)
    _lose_lines_after_checkpoint(path, "remove", "add")


def lose_metadata_from_commits(path: Path) -> None:
    delete_by_vectors(path)
    _lose_lines_after_checkpoint(path, "metaData")


def lose_transaction_from_commits(path: Path) -> None:
    commit_by_hand(path, {"commitInfo": {}}, {"txn": {"appId": "app", "version": 7}})
    _lose_lines_after_checkpoint(path, "txn")


def leave_tombstone_out_of_checkpoint(path: Path) -> None:
    now_ms = int(time.time() * 1000)
    newest = commit_by_hand(path, remove("removed-just-now.parquet", at_ms=now_ms))
    lines = [line for version in range(newest) for line in actions(path, version)]
    put_checkpoint(open_store(path), newest, lines)


def put_part_of_checkpoint(path: Path) -> None:
    part = path / "_delta_log" / f"{3:020}.checkpoint.{1:010}.{2:010}.parquet"
    part.write_bytes(checkpoint_file(path).read_bytes())
    then = time.time() - 2 * _DAY_SECONDS
    os.utime(part, (then, then))


def pointer(path: Path) -> Path:
    return path / "_delta_log" / "_last_checkpoint"


def break_pointer(path: Path) -> None:
    pointer(path).write_text('{"version":2,"size":')


def point_nowhere(path: Path) -> None:
    pointer(path).write_text('{"version":4,"size":7}')


def lose_pointer(path: Path) -> None:
    pointer(path).unlink()
    then = time.time() - 2 * 60
    os.utime(checkpoint_file(path), (then, then))


def miscount_in_checksum_file(path: Path) -> None:
    text = json.dumps({"numFiles": 4, "tableSizeBytes": 1, "numMetadata": 1, "numProtocol": 1})
    (path / "_delta_log" / f"{4:020}.crc").write_text(text)


def garble_checksum_file(path: Path) -> None:
    (path / "_delta_log" / f"{4:020}.crc").write_text("{")


def miscount_in_an_older_checksum_file(path: Path) -> None:
    text = json.dumps({"numFiles": 7, "tableSizeBytes": 1, "numMetadata": 1, "numProtocol": 1})
    (path / "_delta_log" / f"{3:020}.crc").write_text(text)


def leave_old_sum_of_the_pointer(path: Path) -> None:
    sums = b"crc\x00" + (512).to_bytes(4, "big") + bytes(4)
    (path / "_delta_log" / "._last_checkpoint.crc").write_bytes(sums)


def leave_old_hadoop_sum(path: Path) -> None:
    sums = b"crc\x00" + (512).to_bytes(4, "big") + bytes(4)
    (path / "_delta_log" / f".{4:020}.json.crc").write_bytes(sums)


def leave_checksums_of_a_later_version(path: Path) -> None:
    """Leave what delta-spark writes beside a commit that is gone."""
    (path / "_delta_log" / f"{5:020}.crc").write_text("{}")
    (path / "_delta_log" / f".{5:020}.json.crc").write_bytes(b"crc\x00\x00\x00\x02\x00")
