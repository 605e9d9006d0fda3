"""One hot table with a key at a time: two of them would not know whose row is the newest."""

from __future__ import annotations

import json
import os

import pytest

from lakehand.errors import HotTableTakenError, HotTierError
from lakehand.hot import HotTable
from support.forks import run_forked
from support.hot_tables import SCHEMA, cold_pairs, hot_table, pairs, rows

RECORD = "table/_lakehand/hot/owner.json"


def other_table(folder, **options):
    """Return a hot table over the same table, with a log of its own."""
    options = {"log": folder / "other-log", "schema": SCHEMA, "key": ["id"], **options}
    return HotTable(folder / "table", **options)


def test_a_second_hot_table_by_key_is_refused(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.upsert(rows([1], "new"))
        with pytest.raises(HotTableTakenError, match="brings changes by key") as raised:
            other_table(tmp_path).open()
        assert raised.value.path == str(tmp_path / "log")
    with other_table(tmp_path) as other:
        assert pairs(other.read()) == [(1, "new")]


def test_hot_tables_without_a_key_do_not_meet(tmp_path):
    with hot_table(tmp_path) as hot, other_table(tmp_path, key=()) as other:
        hot.append(rows([1]))
        other.append(rows([2]))
    assert cold_pairs(tmp_path) == [(1, "a"), (2, "a")]


def test_changes_that_stay_in_a_log_keep_the_table(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.upsert(rows([1]))
        hot.close(flush=False)
    with pytest.raises(HotTableTakenError):
        other_table(tmp_path).open()
    with hot_table(tmp_path, key=["id"]):
        pass
    with other_table(tmp_path) as other:
        assert pairs(other.read()) == [(1, "a")]


def test_who_was_taken_over_flushes_no_more_and_keeps_its_changes(tmp_path):
    hot = hot_table(tmp_path, key=["id"]).open()
    hot.upsert(rows([1, 2], "old"))
    with other_table(tmp_path, takeover=True) as other:
        other.upsert(rows([1], "new"))
        with pytest.raises(HotTableTakenError, match="other-log"):
            hot.flush()
        assert pairs(hot.read()) == [(1, "old"), (2, "old")]
    hot.close(flush=False)
    assert cold_pairs(tmp_path) == [(1, "new")]


def test_who_is_taken_over_while_it_writes_does_not_commit(tmp_path, monkeypatch):
    hot = hot_table(tmp_path, key=["id"]).open()
    hot.upsert(rows([1], "old"))
    writer, others = hot._parts.writer(), []

    def taken_over(*_):
        others.append(other_table(tmp_path, takeover=True).open())

    monkeypatch.setattr(writer, "_begin", with_before(writer._begin, taken_over))
    with pytest.raises(HotTableTakenError):
        hot.flush()
    hot.close(flush=False)
    others[0].close()
    assert cold_pairs(tmp_path) == []


def with_before(call, before):
    def both(*given):
        before()
        return call(*given)

    return both


def open_and_die(folder, options):
    hot_table(folder, key=["id"], **options).open().upsert(rows([1], "kept"))
    os._exit(0)  # without an end of the hot table


def test_a_log_goes_on_after_a_crash_and_no_other_does(tmp_path):
    run_forked(open_and_die, tmp_path, {})
    with pytest.raises(HotTableTakenError):
        other_table(tmp_path).open()
    with hot_table(tmp_path, key=["id"]) as hot:
        assert pairs(hot.read()) == [(1, "kept")]
    assert not (tmp_path / RECORD).exists()


def test_changes_that_went_with_their_process_keep_nobody_out(tmp_path):
    run_forked(open_and_die, tmp_path, {"hot_durability": "none"})
    assert json.loads((tmp_path / RECORD).read_text())["log"] is None
    with other_table(tmp_path) as other:
        other.upsert(rows([2]))
        with pytest.raises(HotTableTakenError):
            hot_table(tmp_path, key=["id"], hot_durability="none").open()
    assert cold_pairs(tmp_path) == [(2, "a")]


def test_a_hot_table_that_cannot_be_opened_keeps_nobody_out(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("lakehand.hot.opening._take_up", fail)
        with pytest.raises(HotTierError, match="not this time"):
            hot_table(tmp_path, key=["id"], hot_durability="none").open()
    with other_table(tmp_path):
        pass


def fail(*_given, **_options):
    raise HotTierError("not this time")


def test_a_record_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    with hot_table(tmp_path, key=["id"]) as hot:
        (tmp_path / RECORD).write_text("{}")
        with pytest.raises(HotTableTakenError, match=r"owner\.json"):
            other_table(tmp_path).open()
        hot.close(flush=False)


def test_changes_that_were_given_up_never_replace_newer_rows(tmp_path):
    hot = hot_table(tmp_path, key=["id"]).open()
    hot.upsert(rows([1, 2], "old"))
    with other_table(tmp_path, takeover=True) as other:
        other.upsert(rows([1], "new"))
    with pytest.raises(HotTableTakenError, match=r"taken .* over"):
        hot.flush()
    hot.close(flush=False)
    with pytest.raises(HotTableTakenError, match=r"taken .* over"):
        hot_table(tmp_path, key=["id"]).open()
    assert cold_pairs(tmp_path) == [(1, "new")]
    with hot_table(tmp_path, key=["id"], takeover=True):
        pass
    assert cold_pairs(tmp_path) == [(1, "old"), (2, "old")]
    with hot_table(tmp_path, key=["id"]) as again:
        again.upsert(rows([3]))


def test_a_takeover_that_fails_leaves_the_table_to_its_owner(tmp_path, monkeypatch):
    with hot_table(tmp_path, key=["id"]) as hot:
        hot.upsert(rows([1], "kept"))
        hot.close(flush=False)
    record = (tmp_path / RECORD).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("lakehand.hot.opening._take_up", fail)
        with pytest.raises(HotTierError, match="not this time"):
            other_table(tmp_path, takeover=True).open()
    assert (tmp_path / RECORD).read_bytes() == record
    with hot_table(tmp_path, key=["id"]):
        pass
    assert cold_pairs(tmp_path) == [(1, "kept")]


@pytest.mark.parametrize(
    "members", [{"process": 5}, {"process": "x@1"}, {"identity": None}, {"host": []}]
)
def test_a_record_with_odd_members_is_refused_by_name(tmp_path, members):
    with hot_table(tmp_path, key=["id"], hot_durability="none") as hot:
        document = json.loads((tmp_path / RECORD).read_text())
        (tmp_path / RECORD).write_text(json.dumps({**document, **members}))
        with pytest.raises(HotTableTakenError):
            other_table(tmp_path).open()
        hot.close(flush=False)
