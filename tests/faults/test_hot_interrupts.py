"""Ctrl-C at any line of a hot table: memory is what the log is, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand.hot
from lakehand.errors import ConstraintError, HotTierError
from lakehand.hot.journal import _Ticket
from lakehand.hot.segments import Kind
from support.hot_tables import hot_table, rows, wait_until

CODE = str(Path(lakehand.hot.__file__).parent)
QUIET = {"hot_refresh_interval": "1h", "hot_flush_age": "1h"}


@contextmanager
def interrupt_at(number):
    """Interrupt the thread at the line of a hot table's code that it comes to as `number`-th.

    Yields a list that is empty as long as it has not come to it.
    """
    seen, hit, before = {}, [], sys.gettrace()

    def on_line(frame, event, _argument):
        # Lines that come again are ends of `with`: no signal comes between a block and these.
        if event == "line" and (frame, frame.f_lineno) not in seen:
            seen[frame, frame.f_lineno] = True
            if len(seen) == number:
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return on_line

    sys.settrace(lambda frame, *_: on_line if frame.f_code.co_filename.startswith(CODE) else None)
    try:
        yield hit
    except KeyboardInterrupt:
        assert hit
    finally:
        sys.settrace(before)


def in_time(work, hit=()):
    """Let another thread do some work, which must not wait for ever."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), hit


def ids(hot):
    return Counter(hot.read()["id"].to_pylist())


@pytest.mark.parametrize("durability", ["full", "none"])
def test_an_append_may_be_interrupted_at_any_line(tmp_path, durability):
    hot = hot_table(tmp_path, hot_durability=durability, hot_segment_bytes=4096, **QUIET).open()
    kept = Counter()
    for number in range(1, 1000):
        with interrupt_at(number) as hit:
            hot.append(rows([-number]))
            kept[-number] += 1
        in_time(lambda: hot.append(rows([number])), hit)  # noqa: B023  it is over in this turn
        kept[number] += 1
        seen = ids(hot)
        assert not kept - seen, hit
        assert not seen - kept - Counter({-number: 1}), hit
        kept = seen
        if not hit:
            break
    assert number > 40
    if durability == "full":
        hot.close(flush=False)
        hot = hot_table(tmp_path, **QUIET).open()
        assert ids(hot) == kept
    hot.flush()
    assert ids(hot) == kept
    # Memory that was taken a moment ago may be lost; there is never more of it than there was.
    assert 0 <= hot.storage_stats().shared_bytes < 10 * 400
    hot.close()


def test_an_append_that_is_refused_may_be_interrupted_at_any_line(tmp_path):
    """Its memory is given back at most once."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
    hot = hot_table(tmp_path, schema=schema, hot_durability="none", **QUIET).open()
    hot.append(rows([1]))
    for number in range(1, 1000):
        before = hot.storage_stats().shared_bytes
        with interrupt_at(number) as hit, suppress(ConstraintError):
            hot.append(rows([None]))
        assert hot.storage_stats().shared_bytes >= before, hit
        if not hit:
            break
    assert number > 10
    hot.close()


def test_who_shares_a_write_with_a_thread_that_is_interrupted_is_told_so(tmp_path, monkeypatch):
    """No thread is interrupted because another one is."""
    hot, told, real = hot_table(tmp_path, **QUIET).open(), [], os.writev
    journal = hot._parts.journal

    def append():
        try:
            hot.append(rows([1]))
        except HotTierError as error:
            told.append(error.hint)

    journal._writer = _Ticket(Kind.ROWS, list, 0)  # the next change has to wait
    thread = threading.Thread(target=append)
    thread.start()
    wait_until(lambda: journal._waiting)
    journal._writer = None
    monkeypatch.setattr(os, "writev", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        hot.append(rows([2]))
    thread.join()
    monkeypatch.setattr(os, "writev", real)
    hot.append(rows([3]))

    assert told == ["nothing of the change was taken; try again"]
    assert ids(hot) == {3: 1}
    hot.close()


def test_a_flush_that_is_interrupted_while_it_waits_for_writers_lets_them_go_on(
    tmp_path, monkeypatch
):
    hot, real, go_on = hot_table(tmp_path, **QUIET).open(), os.fdatasync, threading.Event()
    hot.append(rows([1]))
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (go_on.wait(20), real(descriptor)))
    slow = threading.Thread(target=hot.append, args=(rows([2]),))
    slow.start()
    wait_until(lambda: hot._parts.journal._writer)
    press = threading.Thread(target=press_when, args=(hot._parts.journal._gate.locked,))
    press.start()
    with pytest.raises(KeyboardInterrupt):
        hot.flush()
    go_on.set()
    press.join()
    slow.join()

    in_time(lambda: hot.append(rows([3])))
    hot.flush()
    assert ids(hot) == {1: 1, 2: 1, 3: 1}
    hot.close()


def test_a_log_is_free_whatever_fails_when_its_table_is_closed(tmp_path, monkeypatch):
    hot = hot_table(tmp_path, **QUIET).open()
    hot.append(rows([1]))
    hot.flush()
    hot.append(rows([2]))
    monkeypatch.setattr(hot._parts.writer(), "close", interrupted)
    monkeypatch.setattr(hot._flusher, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hot.close(flush=False)

    with hot_table(tmp_path, **QUIET) as hot:
        assert ids(hot) == {1: 1, 2: 1}


def test_a_log_is_free_when_no_thread_can_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="start new thread"):
        hot_table(tmp_path, **QUIET).open()
    monkeypatch.undo()
    hot_table(tmp_path, **QUIET).open().close()


def interrupted():
    raise KeyboardInterrupt


def refused(_thread):
    raise RuntimeError("can't start new thread")


def test_the_thread_that_flushes_outlives_whatever_it_hears(tmp_path, monkeypatch):
    """Libraries that are no Python raise what is no Exception."""
    hot = hot_table(tmp_path, **{**QUIET, "hot_flush_age": "20ms"}).open()
    real, seen = hot.flush, []

    def panic():
        seen.append(1)
        raise BaseException("panicked")  # noqa: TRY002  as PyO3 has it

    monkeypatch.setattr(hot, "flush", panic)
    hot.append(rows([1]))
    wait_until(lambda: seen)
    monkeypatch.setattr(hot, "flush", real)
    wait_until(lambda: hot.hot_rows == 0)

    assert ids(hot) == {1: 1}
    hot.close()


# A file that nobody has a name for any more is closed when it is forgotten.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("key", "stride"),
    [
        pytest.param((), 13, id="appended"),
        pytest.param((), 1, id="appended, all lines", marks=pytest.mark.soak),
        pytest.param(("id",), 7, id="keyed", marks=pytest.mark.soak),
    ],
)
def test_a_flush_that_is_interrupted_is_made_again(tmp_path, key, stride):
    hot = hot_table(tmp_path, key=key, hot_flush_age="1h").open()
    kept = Counter()
    for number in range(1, 2000, stride):
        hot.append(rows([number]))
        kept[number] += 1
        with interrupt_at(number) as hit:
            hot.flush()
        assert ids(hot) == kept, hit
        hot.flush()
        assert ids(hot) == kept, hit
        assert hot.hot_rows == 0, hit
        if not hit:
            break
    assert number > 150
    hot.close()
    with hot_table(tmp_path, key=key) as hot:
        assert ids(hot) == kept


def press_when(condition):
    wait_until(condition)
    os.kill(os.getpid(), signal.SIGINT)


# A file that nobody has a name for any more is closed when it is forgotten.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_epoch_may_be_interrupted_at_any_line_where_it_ends(tmp_path):
    """Changes are of the epoch in memory that they are of in the log: the two go together."""
    hot = hot_table(tmp_path, **QUIET).open()
    for number in range(1, 1000):
        hot.append(rows([-number]))
        with interrupt_at(number) as hit:
            hot._parts.freeze()
        in_time(lambda: hot.append(rows([number])), hit)  # noqa: B023  it is over in this turn
        assert hot._parts.log.epoch == hot._parts.layers.active.epoch, hit
        if not hit:
            break
    assert number > 20
    expected = ids(hot)
    assert expected == Counter(n * sign for n in range(1, number + 1) for sign in (-1, 1))
    hot.close(flush=False)
    hot = hot_table(tmp_path, **QUIET).open()
    assert ids(hot) == expected
    hot.close(flush=False)
