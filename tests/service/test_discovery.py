"""Tables are found by path and pattern, and what cannot be listed is told."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehand
from lakehand.service.config import SourceSection
from lakehand.service.discovery import discover

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.fixture
def lake(tmp_path):
    for name in ("sales/orders", "sales/eu/orders", "hr/people", "scratch/x", "top"):
        lakehand.create_table(tmp_path / name, SCHEMA)
    lakehand.create_table(tmp_path / "vectors/images.lance", SCHEMA, format="lance")
    (tmp_path / "sales/plain").mkdir()
    (tmp_path / "sales/plain/a.parquet").write_bytes(b"")
    return tmp_path


def found(lake, *include, exclude=()):
    source = SourceSection(
        name="lake",
        include=tuple(f"{lake}/{pattern}".rstrip("/") for pattern in include),
        exclude=tuple(f"{lake}/{pattern}" for pattern in exclude),
    )
    seen = discover(source, lambda _url: None)
    assert seen.errors == []
    return {table.url.removeprefix(f"file://{lake}/"): table.format for table in seen.tables}


def test_a_directory_stands_for_all_tables_below_it(lake):
    assert found(lake, "") == {
        "hr/people": "delta",
        "sales/eu/orders": "delta",
        "sales/orders": "delta",
        "scratch/x": "delta",
        "top": "delta",
        "vectors/images.lance": "lance",
    }


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["*/orders"], [], ["sales/orders"]),
        (["*/*"], [], ["hr/people", "sales/orders", "scratch/x", "vectors/images.lance"]),
        (["**/orders"], [], ["sales/eu/orders", "sales/orders"]),
        (["**"], ["s*/**", "top"], ["hr/people", "vectors/images.lance"]),
        (["top"], [], ["top"]),
        (["top", "*"], [], ["top"]),
        (["sales/*/orders"], [], ["sales/eu/orders"]),
        (["**"], ["**/orders", "scratch/**"], ["hr/people", "top", "vectors/images.lance"]),
    ],
)
def test_patterns_choose_tables(lake, include, exclude, names):
    assert sorted(found(lake, *include, exclude=exclude)) == names


def test_a_table_inside_a_table_is_not_looked_for(lake):
    lakehand.create_table(lake / "top/inner", SCHEMA)
    assert "top/inner" not in found(lake, "**")


def test_what_cannot_be_listed_is_told_and_nothing_is_called_gone(lake):
    source = SourceSection(name="x", include=(f"{lake}/sales", "s3://no-such-bucket-here/**"))
    options = {
        "endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "region": "x",
        "access_key_id": "a",
        "secret_access_key": "b",
    }
    seen = discover(source, lambda url: {**options} if url.startswith("s3:") else None)
    assert [table.url.rsplit("/", 2)[-1] for table in seen.tables] == ["orders", "orders"]
    assert not seen.is_complete
    assert [error["url"] for error in seen.errors] == ["s3://no-such-bucket-here"]
    assert "secret" not in str(seen.errors)
