"""A bit that flipped in a footer never ends the process: what goes wrong is typed and named."""

from __future__ import annotations

import shutil
import struct
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehand
from lakehand.errors import CorruptFileError
from lakehand.parquet.footer import (
    MAGIC,
    TRAILER_BYTES,
    ChunkField,
    ColumnField,
    chunks,
    parse_footer,
    split_footer,
)
from lakehand.parquet.thrift import I32, encode
from support.compactions import tasks_inline
from support.flipped_bits import act_on_flips, footer_bits
from support.forced_compactions import compact_here
from support.forks import run_forked

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
#: Spread over the footer and over the bits of bytes.
STRIDE = 131


def make_table(place):
    table = lakehand.create_table(place, SCHEMA, engine="local")
    for start in range(0, 60, 20):
        ids = range(start, start + 20)
        tags = [[f"tag {i % 3}"] * (i % 3) for i in ids]
        table.append(pa.table({"id": ids, "tags": tags}, SCHEMA))
    return place


def opened(place):
    return lakehand.open_table(place, engine="local", min_files=2)


@contextmanager
def copied(place):
    copy = place.with_name("copy")
    shutil.copytree(place, copy, dirs_exist_ok=True)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def compact(place):
    with copied(place) as copy, tasks_inline():
        assert opened(copy).compact().outcome == "committed"


def move_row_groups(place):
    with copied(place) as copy:
        assert compact_here(copy, method="copy").outcome == "committed"


def read(place):
    assert opened(place).to_arrow().num_rows == 60


VERBS = {
    "verify": lambda place: opened(place).verify(),
    "plan": lambda place: opened(place).plan(),
    "to_arrow": read,
    "where": lambda place: opened(place).to_arrow(where="id >= 0"),
    "compact": compact,
    "copy": move_row_groups,
    "checkpoint": lambda place: opened(place).snapshot(),
}


def act(verb, place, file, bits):
    # A page index is moved as it is, and compared with the pages of the new file.
    act_on_flips(place, file, bits, VERBS[verb], may_fail_proof=verb == "copy")


def damaged_file(verb, place):
    if verb == "checkpoint":
        opened(place).checkpoint()
        return next(place.glob("_delta_log/*.parquet"))
    file = sorted(place.glob("*.parquet"))[1]
    if verb == "where":
        # Statistics are asked for where there are row groups to choose from.
        pq.write_table(pq.read_table(file), file, row_group_size=8)
    return file


@pytest.mark.parametrize("verb", VERBS)
def test_some_flips(tmp_path, verb):
    place = make_table(tmp_path / "t")
    file = damaged_file(verb, place)
    stride = STRIDE * (20 if verb == "checkpoint" else 1)

    done = run_forked(act, verb, place, file, footer_bits(file.read_bytes())[::stride])

    assert done.returncode == 0, done.said


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_all_flips(tmp_path, verb):
    place = make_table(tmp_path / "t")
    file = damaged_file(verb, place)
    bits = footer_bits(file.read_bytes())
    for start in range(0, len(bits), 50):
        done = run_forked(act, verb, place, file, bits[start : start + 50])
        assert done.returncode == 0, done.said


def name_a_codec_that_does_not_exist(file):
    data = file.read_bytes()
    footer = parse_footer(split_footer(data), path="", file_bytes=len(data))
    for chunk in chunks(footer.row_groups[0]):
        chunk[ChunkField.METADATA][1][ColumnField.CODEC] = (I32, 9)
    written = encode(footer.meta)
    end = len(data) - TRAILER_BYTES - len(split_footer(data))
    file.write_bytes(data[:end] + written + struct.pack("<I", len(written)) + MAGIC)


def meet_the_codec(place, name):
    for verb in ("to_arrow", "where", "compact"):
        with pytest.raises(CorruptFileError) as caught:
            VERBS[verb](place)
        assert name in f"{caught.value}"
    assert opened(place).plan().groups
    found = opened(place).verify().findings
    assert ("unreadable_footer", name) in {(one.name, one.path) for one in found}


def test_a_file_with_an_unknown_codec_is_named(tmp_path):
    place = make_table(tmp_path / "t")
    file = damaged_file("compact", place)
    name_a_codec_that_does_not_exist(file)

    done = run_forked(meet_the_codec, place, file.name)

    assert done.returncode == 0, done.said
