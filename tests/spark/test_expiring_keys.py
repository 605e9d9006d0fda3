"""Keys of a profile that are withdrawn in the middle of a run on Spark."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import AccessDeniedError
from lakehand.storage import open_store
from support import spark_compactions
from support.watched_tasks import Board

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(400)]
LIFETIME = timedelta(seconds=4)


@pytest.fixture
def board(tmp_path):
    (tmp_path / "board").mkdir()
    return Board(folder=tmp_path / "board")


class Profile:
    """A profile whose program hands out the keys of a user of the server."""

    def __init__(self, folder, server):
        self._keys = folder / "keys.json"
        self._calls = folder / "calls"
        self.variables = {"AWS_CONFIG_FILE": str(folder / "config"), "AWS_PROFILE": "mine"}
        (folder / "config").write_text(
            "[profile mine]\n"
            f"endpoint_url = {server.endpoint}\n"
            f"region = {server.options['region']}\n"
            f"credential_process = sh -c 'echo $PPID >> {self._calls}; cat {self._keys}'\n"
        )

    def hand_out(self, options, lifetime):
        expiry = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = {"AccessKeyId": options["access_key_id"], "Expiration": expiry, "Version": 1}
        keys["SecretAccessKey"] = options["secret_access_key"]
        self._keys.write_text(json.dumps(keys))

    def calls_of(self, pid):
        """Return how often a process asked for keys."""
        return self._calls.read_text().split().count(str(pid))


# The server withdraws keys a few seconds before they expire, which a slow driver may notice.
@pytest.mark.soak
@pytest.mark.only_on("spark")
def test_executors_renew_keys_that_expire_in_the_middle_of_a_run(host, s3_server, board, tmp_path):
    uri = s3_server.new_uri()
    made = lakehand.create_table(
        uri, pa.schema([("id", pa.int64())]), storage_options=s3_server.options
    )
    for number in range(3):
        made.append(pa.table({"id": [number]}))
    everything = [
        {
            "Effect": "Allow",
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{s3_server.bucket}{rest}" for rest in ("", "/*")],
        }
    ]
    profile = Profile(tmp_path, s3_server)
    first = s3_server.grant(everything)
    profile.hand_out(first, LIFETIME)
    board.hold(0)

    host.begin(spark_compactions.compact_with_profile, uri, profile.variables, board)
    [held] = board.wait_for("held", count=1)
    before = profile.calls_of(held["pid"])
    second = s3_server.grant(everything)
    with pytest.raises(AccessDeniedError):
        open_store(uri, first).put("a", b"")
    profile.hand_out(second, timedelta(hours=1))
    time.sleep(LIFETIME.total_seconds())
    board.release(0)
    report = host.answer(seconds=120)

    assert (report["ran_on"], report["files_removed"]) == ("spark", 3)
    assert profile.calls_of(held["pid"]) > before, "the executor has asked for new keys"
    assert sorted(made.to_arrow()["id"].to_pylist()) == [0, 1, 2]
