"""A table of a store that only the Spark session knows how to reach."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehand
from support import spark_compactions


@pytest.mark.only_on("spark", "connect")
@pytest.mark.one_in(2)
def test_a_table_is_reached_by_what_the_session_was_told(host, s3_server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    uri, options = s3_server.new_uri(), s3_server.options
    table = lakehand.create_table(uri, pa.schema([("id", pa.int64())]), storage_options=options)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    hadoop = {
        "fs.s3a.endpoint": s3_server.endpoint.removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        f"fs.s3a.bucket.{s3_server.bucket}.access.key": options["access_key_id"],
        f"fs.s3a.bucket.{s3_server.bucket}.secret.key": options["secret_access_key"],
        "fs.s3a.access.key": "of-another-bucket",
    }
    report = host.call(spark_compactions.compact_as_the_session_says, uri, hadoop)
    assert report["files_added"] == 1
    assert table.snapshot().file_count == 1
