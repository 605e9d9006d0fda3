from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest

from lakehand.formats.delta.checkpoints.last_checkpoint import (
    LastCheckpoint,
    canonical_md5,
    read_last_checkpoint,
    write_last_checkpoint,
)
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY
from lakehand.storage import open_store

GOLDEN = Path(os.environ.get("LAKEHAND_GOLDEN", "../shared/golden"))
HIDDEN_SUM = "_delta_log/._last_checkpoint.crc"
POINTER = LastCheckpoint(version=7, action_count=12, size_bytes=900, add_count=10)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    return open_store(tmp_path)


def test_the_checksum_agrees_with_the_published_example():
    document = (
        """{"k0":"'v 0'","checksum":"x","k1":{"k2":2,"k3":["v3",[1,2],"""
        """{"k4":"v4","k5":["v5","v6","v7"]}]}}"""
    )

    assert canonical_md5(document) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_only_the_checksum_of_the_document_itself_is_left_out():
    assert canonical_md5('{"a": 1, "checksum": "x"}') == canonical_md5('{"a": 1}')
    assert canonical_md5('{"a": {"checksum": "x"}}') != canonical_md5('{"a": {}}')


def test_elements_are_ordered_by_the_bytes_of_their_pairs():
    eleven = json.dumps({"k": [0] * 11})

    # 10 comes before 1, because the character 0 sorts before =.
    order = [0, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    pairs = ",".join(f'"k"+{index}=0' for index in order)
    assert canonical_md5(eleven) == hashlib.md5(pairs.encode()).hexdigest()


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden tables are not here (LAKEHAND_GOLDEN)")
def test_checksums_of_other_engines_match():
    documents = [path.read_text() for path in GOLDEN.glob("tables/**/_last_checkpoint")]
    stated = [text for text in documents if '"checksum"' in text]

    assert stated
    assert [json.loads(text)["checksum"] for text in stated] == list(map(canonical_md5, stated))


def test_what_was_written_is_read_back(store):
    assert write_last_checkpoint(store, POINTER)

    assert read_last_checkpoint(store) == POINTER


def test_the_document_starts_with_what_old_readers_need_and_holds_no_schema():
    fields = list(json.loads(POINTER.to_json()))

    assert fields == ["version", "size", "sizeInBytes", "numOfAddFiles", "checksum"]


def test_an_unknown_number_of_actions_is_written_as_minus_one(store):
    write_last_checkpoint(store, LastCheckpoint(version=3))

    assert json.loads(store.get(LAST_CHECKPOINT_KEY))["size"] == -1
    assert read_last_checkpoint(store) == LastCheckpoint(version=3)


def test_a_table_without_hint_has_none(store):
    assert read_last_checkpoint(store) is None


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"size": 3}',
        b'{"version": "3"}',
        b'{"version": -1}',
        b'{"version": 3, "version": 4}',
        b'{"version": NaN}',
        b'{"version": 3',
        b'{"version": 3, "checksum": "d41d8cd98f00b204e9800998ecf8427e"}',
    ],
)
def test_a_hint_that_cannot_be_trusted_is_ignored_and_logged(store, caplog, document):
    store.put(LAST_CHECKPOINT_KEY, document)

    with caplog.at_level(logging.WARNING, logger="lakehand"):
        assert read_last_checkpoint(store) is None

    assert [record.event for record in caplog.records] == ["last_checkpoint_ignored"]


def test_the_hint_never_moves_backwards(store):
    write_last_checkpoint(store, POINTER)

    assert not write_last_checkpoint(store, LastCheckpoint(version=6))
    assert read_last_checkpoint(store) == POINTER


def test_a_corrupt_hint_is_replaced(store):
    store.put(LAST_CHECKPOINT_KEY, b"garbage")

    assert write_last_checkpoint(store, POINTER)
    assert read_last_checkpoint(store) == POINTER


def test_the_stale_sum_of_hadoop_goes_before_the_hint_is_overwritten(store):
    store.put(HIDDEN_SUM, b"crc of other bytes")

    write_last_checkpoint(store, POINTER)

    assert not store.exists(HIDDEN_SUM)
