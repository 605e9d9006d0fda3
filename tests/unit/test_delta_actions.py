from __future__ import annotations

import json

import pytest

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.protocol.actions import (
    Metadata,
    Protocol,
    dv_id,
    file_key,
    parse_commit,
)


def lines(*actions: dict) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


ADD = {"path": "a%20b", "partitionValues": {}, "size": 1, "modificationTime": 2, "own": {"x": 1}}


def test_a_commit_holds_every_kind_of_action_as_written():
    data = lines(
        {"commitInfo": {"inCommitTimestamp": 7}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "schemaString": "{}"}},
        {"add": ADD},
        {"remove": {"path": "b"}},
        {"cdc": {"path": "c"}},
        {"txn": {"appId": "app", "version": 1}},
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}},
        {"futureAction": {"x": 1}},
    )
    commit = parse_commit(3, data)
    assert commit.version == 3
    assert commit.in_commit_timestamp == 7
    assert commit.adds == (ADD,)
    assert [commit.removes[0]["path"], commit.cdcs[0]["path"]] == ["b", "c"]
    assert commit.transactions[0]["appId"] == "app"
    assert commit.domains[0]["domain"] == "d"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b'{"add":{"path":"x"',
        b"[1]",
        b"\xff\xfe",
        b'{"add":{}}',
        b'{"protocol":{"minReaderVersion":1}}',
        b'{"metaData":{"id":"1"}}\n{"metaData":{"id":"2"}}',
    ],
)
def test_an_unreadable_commit_is_a_typed_error_that_names_the_file(data):
    with pytest.raises(CorruptLogError, match="version 4") as caught:
        parse_commit(4, data)
    assert caught.value.attributes["path"] == "_delta_log/00000000000000000004.json"
    assert caught.value.hint


def test_protocol_and_metadata_keep_keys_they_do_not_know():
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "new": 1}
    protocol["writerFeatures"] = ["appendOnly"]
    metadata = {"id": "i", "schemaString": "{}", "partitionColumns": ["p"], "new": {"a": 1}}
    metadata |= {"configuration": {"k": "v"}, "format": {"provider": "parquet", "options": {}}}
    assert Protocol.from_json(protocol).to_json() == protocol
    assert Metadata.from_json(metadata).to_json() == metadata


def test_feature_lists_stay_absent_where_the_version_has_none():
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    assert Protocol.from_json(protocol).to_json() == protocol


def test_a_file_is_known_by_decoded_path_and_deletion_vector():
    descriptor = {"storageType": "u", "pathOrInlineDv": "xyz", "offset": 0}
    assert file_key(ADD) == ("a b", None)
    assert file_key({**ADD, "deletionVector": descriptor}) == ("a b", "uxyz@0")
    assert dv_id({"storageType": "i", "pathOrInlineDv": "xyz"}) == "ixyz"
