from __future__ import annotations

import pytest

from lakehand.formats.delta.protocol import names
from lakehand.formats.delta.protocol.names import (
    CheckpointName,
    ChecksumName,
    CommitName,
    CompactionName,
    parse_log_name,
)

V = "0" * 19


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V}3.json", CommitName(version=3)),
        ("7.json", CommitName(version=7)),
        (f"{V}3.crc", ChecksumName(version=3)),
        (f"{V}3.{V}7.compacted.json", CompactionName(first=3, last=7)),
        (f"{V}3.checkpoint.parquet", CheckpointName(version=3, kind="classic")),
        (
            f"{V}3.checkpoint.0000000002.0000000005.parquet",
            CheckpointName(version=3, kind="multipart", part=2, parts=5),
        ),
        (
            f"{V}3.checkpoint.a-b.json",
            CheckpointName(version=3, kind="v2", extension="json", unique="a-b"),
        ),
        (f"{V}3.checkpoint.a-b.parquet", CheckpointName(version=3, kind="v2", unique="a-b")),
    ],
)
def test_every_kind_of_log_file_is_recognised(name, expected):
    assert parse_log_name(name) == expected
    assert parse_log_name(f"_delta_log/{name}") == expected


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        f".{V}3.json.crc",
        f"{V}3.json#1",
        f"{V}3.json.tmp",
        f"_staged_commits/{V}3.uuid.json",
        f"_sidecars/{V}3.checkpoint.0000000001.0000000002.uuid.parquet",
        f"{V}7.{V}3.compacted.json",
        f"{V}3.checkpoint.0000000006.0000000005.parquet",
        f"{V}3.checkpoint.a.b.json",
    ],
)
def test_names_without_meaning_are_ignored(name):
    assert parse_log_name(name) is None


def test_keys_that_are_written_are_recognised_when_read():
    keys = [
        names.commit_key(12),
        names.classic_checkpoint_key(12),
        names.v2_checkpoint_key(12, "u", "json"),
    ]
    assert [type(parse_log_name(key)).__name__ for key in keys] == [
        "CommitName",
        "CheckpointName",
        "CheckpointName",
    ]
