"""The log of a hot table: whole records or none, and damage is never taken for a crash."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import stat
import threading
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest

from lakehand.errors import (
    HotLogError,
    HotLogLockedError,
    StorageError,
    StoreQuotaError,
    ValidationError,
)
from lakehand.hot.journal import Journal, _Ticket
from lakehand.hot.ownership import DirectoryLock, claim
from lakehand.hot.segments import Kind, create_segment, decode, encode, encoded_size
from lakehand.hot.write_ahead_log import WriteAheadLog
from support.hot_tables import wait_until

SMALL, LARGE = 4096, 2**20


def open_log(folder, *, committed=-1, segment_bytes=LARGE, syncs=True):
    """Return the log, and what it holds as (epoch, sequence, ids)."""
    folder.mkdir(exist_ok=True)
    log, records = WriteAheadLog.open(
        folder, committed_epoch=committed, segment_bytes=segment_bytes, syncs=syncs
    )
    return log, [(epoch, r.sequence, ids(r.content)) for epoch, r in records]


def encoded(*numbers):
    return encode([pa.record_batch({"id": list(numbers)})])


def put(journal, number):
    return journal.commit(Kind.ROWS, lambda: encoded(number), reserved=0)


def content(*numbers):
    return encoded(*numbers).content


def ids(buffer):
    return decode(buffer)["id"].to_pylist()


def write(log, sequence, *numbers):
    log.write([(Kind.ROWS, sequence, content(*numbers))])


def written_log(folder, count=3):
    log, _ = open_log(folder)
    for sequence in range(1, count + 1):
        write(log, sequence, sequence)
    log.close()
    (path,) = folder.glob("*.wal")
    return path


def test_what_was_written_is_replayed_in_order(tmp_path):
    written_log(tmp_path)

    assert open_log(tmp_path)[1] == [(0, 1, [1]), (0, 2, [2]), (0, 3, [3])]


def test_a_log_goes_on_in_the_same_file(tmp_path):
    path = written_log(tmp_path)
    log, _ = open_log(tmp_path)
    write(log, 4, 4, 44)
    log.close()

    assert open_log(tmp_path)[1][3:] == [(0, 4, [4, 44])]
    assert list(tmp_path.glob("*.wal")) == [path]


def test_large_logs_go_on_in_other_files(tmp_path):
    log, _ = open_log(tmp_path, segment_bytes=SMALL)
    for sequence in range(1, 31):
        write(log, sequence, *range(sequence, sequence + 50))
    log.close()

    assert len(list(tmp_path.glob("*.wal"))) > 3
    assert [sequence for _, sequence, _ in open_log(tmp_path)[1]] == list(range(1, 31))


def test_epochs_lie_in_files_of_their_own_and_go_with_them(tmp_path):
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    assert log.begin_epoch() == 1
    write(log, 2, 2)
    log.drop(0)
    log.close()

    assert open_log(tmp_path)[1] == [(1, 2, [2])]
    assert open_log(tmp_path, committed=0)[1] == [(1, 2, [2])]


def test_epochs_that_are_in_the_table_are_not_replayed(tmp_path):
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    log.begin_epoch()
    write(log, 2, 2)
    log.close()

    assert open_log(tmp_path, committed=0)[1] == [(1, 2, [2])]
    assert len(list(tmp_path.glob("*.wal"))) == 1


def test_sequences_go_on_after_all_changes_are_flushed(tmp_path):
    log, _ = open_log(tmp_path)
    write(log, 7, 1)
    log.begin_epoch()
    log.drop(0)
    log.close()

    assert open_log(tmp_path, committed=0)[0].sequence == 7


@pytest.mark.parametrize("kept", range(1, 20))
def test_a_torn_record_at_the_end_is_cut_off_with_a_warning(tmp_path, caplog, kept):
    path = written_log(tmp_path, count=3)
    whole = path.read_bytes()
    record = (len(whole) - 36) // 3
    path.write_bytes(whole[: len(whole) - record + kept * record // 20])

    with caplog.at_level(logging.WARNING, "lakehand"):
        assert [sequence for _, sequence, _ in open_log(tmp_path)[1]] == [1, 2]
    assert [entry.event for entry in caplog.records] == ["hot_log_cut"]
    assert len(path.read_bytes()) == len(whole) - record
    caplog.clear()
    assert len(open_log(tmp_path)[1]) == 2
    assert caplog.records == []


@pytest.mark.parametrize("part", ["header", "content"])
def test_zeros_where_a_crash_came_before_the_bytes_are_cut_off(tmp_path, caplog, part):
    path = written_log(tmp_path)
    whole = bytearray(path.read_bytes())
    record = (len(whole) - 36) // 3
    zeros = record - 20 if part == "header" else record // 2
    whole[len(whole) - zeros :] = bytes(zeros)
    path.write_bytes(whole)

    assert [sequence for _, sequence, _ in open_log(tmp_path)[1]] == [1, 2]
    assert "cut off" in caplog.text


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_flipped_bit_is_an_error_and_changes_nothing(tmp_path, which):
    """The last record, too: it is there as a whole, so it may have been acknowledged."""
    path = written_log(tmp_path)
    whole = path.read_bytes()
    record = (len(whole) - 36) // 3
    start = 36 + which * record
    for position in [*range(start, start + 32), *range(start + 32, start + record, 7)]:
        damaged = bytearray(whole)
        damaged[position] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(HotLogError, match="damaged"):
            open_log(tmp_path)
        assert path.read_bytes() == damaged


def test_damage_in_an_earlier_file_is_an_error(tmp_path):
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    log.begin_epoch()
    write(log, 2, 2)
    log.close()
    first = min(tmp_path.glob("*.wal"))
    first.write_bytes(first.read_bytes() + b"LHR1")

    with pytest.raises(HotLogError, match="files after it"):
        open_log(tmp_path)


@pytest.mark.parametrize("is_used", [False, True], ids=["empty", "used"])
def test_changes_that_are_missing_at_the_end_of_an_earlier_file_are_an_error(tmp_path, is_used):
    """Each file says where the one before it ended, also if nothing was written to it."""
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    path = log._tail.segment.path
    size = path.stat().st_size
    write(log, 2, 2)
    log.begin_epoch()
    if is_used:
        write(log, 3, 3)
    log.close()
    whole = path.read_bytes()
    for kept in (size, size + 5):
        path.write_bytes(whole[:kept])
        with pytest.raises(HotLogError, match="changes are missing"):
            open_log(tmp_path)


def test_a_file_that_could_not_be_begun_may_be_back_after_a_loss_of_power(tmp_path, monkeypatch):
    """The file before it was written to since, and ends where the power went."""
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    refuse_once(monkeypatch)
    with pytest.raises(StorageError):
        log.begin_epoch()
    write(log, 2, 2)
    log.close()
    path = log._tail.segment.path
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"LHR1")
    create_segment(tmp_path, number=2, epoch=1, sequence=1)
    log, found = open_log(tmp_path)
    write(log, 3, 3)
    log.close()

    assert (found, path.stat().st_size) == ([(0, 1, [1]), (0, 2, [2])], size)
    assert open_log(tmp_path)[1] == [(0, 1, [1]), (0, 2, [2]), (1, 3, [3])]


def test_a_file_that_is_missing_in_between_is_an_error(tmp_path):
    log, _ = open_log(tmp_path)
    for sequence in (1, 2, 3):
        write(log, sequence, sequence)
        log.begin_epoch()
    log.close()
    sorted(tmp_path.glob("*.wal"))[1].unlink()

    with pytest.raises(HotLogError, match="missing"):
        open_log(tmp_path)


def test_files_that_are_in_the_table_may_come_back_in_part(tmp_path):
    """A loss of power may undo some deletions, in any order."""
    log, _ = open_log(tmp_path)
    for sequence in (1, 2, 3):
        write(log, sequence, sequence)
        log.begin_epoch()
    write(log, 4, 4)
    log.close()
    sorted(tmp_path.glob("*.wal"))[1].unlink()

    assert open_log(tmp_path, committed=2)[1] == [(3, 4, [4])]
    assert len(list(tmp_path.glob("*.wal"))) == 1


def test_an_old_copy_of_a_log_is_refused(tmp_path):
    written_log(tmp_path)

    with pytest.raises(HotLogError, match="old copy"):
        open_log(tmp_path, committed=5)


def test_a_full_disk_takes_nothing_and_the_log_goes_on(tmp_path, monkeypatch):
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    real = os.writev

    def half(descriptor, pieces):
        real(descriptor, [bytes(pieces[0])[:5]])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", half)
    with pytest.raises(StoreQuotaError):
        write(log, 2, 2)
    monkeypatch.setattr(os, "writev", real)
    write(log, 3, 3)
    log.close()

    assert open_log(tmp_path)[1] == [(0, 1, [1]), (0, 3, [3])]


def test_a_log_that_could_not_be_synced_takes_no_more(tmp_path, monkeypatch):
    log, _ = open_log(tmp_path)

    def fail(_descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(HotLogError, match="could not be written"):
        write(log, 1, 1)
    monkeypatch.undo()
    with pytest.raises(HotLogError, match="could not be written"):
        write(log, 2, 2)


def interrupt_once(monkeypatch, call):
    """Let Ctrl-C be pressed when the next such call of the system returns."""
    real, pressed = getattr(os, call), []

    def interrupted(*given):
        result = real(*given)
        if not pressed:
            pressed.append(call)
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(os, call, interrupted)


@contextmanager
def full_disk(path):
    """Let no file grow beyond the size of `path` and a few bytes more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_an_interrupted_write_does_not_move_the_end_of_the_log(tmp_path, monkeypatch, call):
    """A write that fails later is taken back to where the last one ended that was acknowledged."""
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    interrupt_once(monkeypatch, call)
    with pytest.raises(KeyboardInterrupt):
        write(log, 2, 2)
    write(log, 3, 3)
    [path] = tmp_path.glob("*.wal")
    with full_disk(path), pytest.raises(StoreQuotaError):
        write(log, 4, 4)
    write(log, 5, 5)
    log.close()

    assert open_log(tmp_path)[1] == [(0, 1, [1]), (0, 3, [3]), (0, 5, [5])]


def test_a_write_that_cannot_be_taken_back_ends_the_log(tmp_path, monkeypatch):
    """Nobody is told that nothing was taken, and nothing is written behind what is in doubt."""
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    [path] = tmp_path.glob("*.wal")
    monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
    with full_disk(path), pytest.raises(HotLogError, match="broken"):
        write(log, 2, 2)
    with pytest.raises(HotLogError, match="could not be written"):
        write(log, 3, 3)
    log.close()
    monkeypatch.undo()

    assert open_log(tmp_path)[1] == [(0, 1, [1])]


def refuse_once(monkeypatch):
    """Let the next file of a log that is opened for writing be one too many."""
    real, refused = os.open, []

    def scarce(path, flags, *further, **named):
        if flags & os.O_APPEND and not refused:
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, *further, **named)

    monkeypatch.setattr(os, "open", scarce)


def test_a_log_that_cannot_begin_a_file_goes_on_in_its_own(tmp_path, monkeypatch):
    """Not under a number that may be the file of somebody else by then."""
    log, _ = open_log(tmp_path / "log")
    write(log, 1, 1)
    refuse_once(monkeypatch)
    with pytest.raises(StorageError, match="Too many open files"):
        log.begin_epoch()
    others = [(tmp_path / str(n)).open("wb") for n in range(3)]
    write(log, 2, 2)
    write(log, 3, 3)
    log.close()
    for other in others:
        other.close()

    assert [(tmp_path / str(n)).read_bytes() for n in range(3)] == [b""] * 3
    assert open_log(tmp_path / "log")[1] == [(0, 1, [1]), (0, 2, [2]), (0, 3, [3])]


def test_a_file_that_could_not_be_begun_does_not_make_the_one_before_it_whole(
    tmp_path, monkeypatch
):
    """A crash cuts the last record of the file that is written to, whatever is behind it."""
    log, _ = open_log(tmp_path)
    write(log, 1, 1)
    refuse_once(monkeypatch)
    with pytest.raises(StorageError):
        log.begin_epoch()
    write(log, 2, 2)
    path = min(tmp_path.glob("*.wal"))
    path.write_bytes(path.read_bytes()[:-3])

    assert open_log(tmp_path)[1] == [(0, 1, [1])]


@contextmanager
def no_more_files():
    """Let no file be opened any more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_change_is_taken_when_no_file_can_be_begun_after_it(tmp_path, caplog):
    """It is in the log: who were told otherwise would write it twice."""
    log, _ = open_log(tmp_path, segment_bytes=SMALL)
    with no_more_files():
        for sequence in (1, 2, 3):
            write(log, sequence, *range(1000))
    assert log.segment_count == 1
    write(log, 4, *range(1000))
    assert log.segment_count == 2
    log.close()

    assert [entry.event for entry in caplog.records] == ["hot_log_stuck"]
    assert [sequence for _, sequence, _ in open_log(tmp_path)[1]] == [1, 2, 3, 4]


def test_many_changes_share_one_sync(tmp_path, monkeypatch):
    log, _ = open_log(tmp_path)
    syncs, real, entered = [], os.fdatasync, threading.Event()

    def slow(descriptor):
        syncs.append(descriptor)
        entered.wait(0.3)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    seen = []
    journal = Journal(log, seen.extend, last=0)
    threads = [threading.Thread(target=put, args=(journal, n)) for n in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()

    assert len(syncs) < 10
    assert [entry.sequence for entry in seen] == list(range(1, 31))
    replayed = [(sequence, found) for _, sequence, found in open_log(tmp_path)[1]]
    assert replayed == [(entry.sequence, entry.rows["id"].to_pylist()) for entry in seen]


def test_callers_of_the_last_group_are_waited_for(tmp_path, monkeypatch):
    """Without it, half of them would be in one group and half in the next: twelve syncs."""
    log, _ = open_log(tmp_path)
    syncs = []
    monkeypatch.setattr(os, "fdatasync", lambda _: (syncs.append(1), time.sleep(0.1)))
    monkeypatch.setattr("lakehand.hot.journal._LONGEST_WAIT_SECONDS", 1)
    journal = Journal(log, lambda _: None, last=0)

    def commit():
        for number in range(6):
            put(journal, number)

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 6 <= len(syncs) <= 9


def test_a_lone_caller_waits_for_nobody(tmp_path, monkeypatch):
    log, _ = open_log(tmp_path)
    monkeypatch.setattr(os, "fdatasync", lambda _: time.sleep(0.01))
    monkeypatch.setattr(Journal, "_wait_for_others", lambda *_: pytest.fail("it waits"))
    journal = Journal(log, lambda _: None, last=0)

    assert [put(journal, n) for n in range(3)] == [1, 2, 3]


_TEXT = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        pytest.param(pa.int64(), [1, None, 3], id="integers"),
        pytest.param(pa.string(), ["a", None, "ccc"], id="strings"),
        pytest.param(pa.string_view(), ["a", None, "longer than twelve"], id="views"),
        pytest.param(pa.list_(pa.decimal128(20, 2)), [[1], None, []], id="lists"),
        pytest.param(pa.struct([("a", pa.bool_())]), [{"a": True}, None, {}], id="structs"),
        pytest.param(pa.null(), [None, None, None], id="nulls"),
        pytest.param(pa.uuid(), [b"0" * 16, None, b"1" * 16], id="extension"),
        pytest.param(_TEXT, ["a", None, "b"], id="dictionary"),
        pytest.param(pa.list_(_TEXT), [["a"], None, ["b"]], id="nested dictionary"),
    ],
)
def test_changes_are_encoded_as_arrow_does_it(kind, values):
    schema = pa.schema([pa.field("x", kind, metadata={"k": "v"})], metadata={"m": "n"})
    array = pa.array(values * 5, kind)
    batches = [pa.record_batch([array.slice(start, 4)], schema=schema) for start in (1, 5, 9)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)

    found = encode(batches)

    assert encoded_size(batches) in {found.content.size, None}
    assert found.content.equals(sink.getvalue())
    assert found.rows.equals(pa.Table.from_batches(batches), check_metadata=True)
    assert decode(found.content).equals(found.rows, check_metadata=True)


def test_a_change_that_cannot_be_encoded_fails_alone(tmp_path):
    """The thread that writes encodes for all: what is wrong with one is told to its caller."""
    log, _ = open_log(tmp_path)
    seen, used, told = [], [100], []
    journal = Journal(
        log,
        seen.extend,
        last=0,
        reserve=used.append,
        release=lambda size: used.append(-size),
    )
    first = threading.Event()

    def hold():
        first.wait(20)
        return encoded(0)

    def refuse():
        raise ValidationError("these rows do not fit", field="data")

    def fail():
        try:
            journal.commit(Kind.ROWS, refuse, reserved=100)
        except ValidationError as error:
            told.append(error)

    holder = threading.Thread(target=journal.commit, args=(Kind.ROWS, hold), kwargs={"reserved": 0})
    holder.start()
    wait_until(lambda: journal._group)
    threads = [threading.Thread(target=put, args=(journal, n)) for n in (1, 2)]
    threads.insert(1, threading.Thread(target=fail))
    for number, thread in enumerate(threads, 1):
        thread.start()
        wait_until(lambda: len(journal._waiting) == number)  # noqa: B023  it is over in this turn
    first.set()
    for thread in (holder, *threads):
        thread.join()
    log.close()

    assert len(told) == 1
    assert [entry.rows["id"].to_pylist() for entry in seen] == [[0], [1], [2]]
    assert sum(used) == sum(entry.bytes for entry in seen)
    replayed = [(sequence, found) for _, sequence, found in open_log(tmp_path)[1]]
    assert replayed == [(entry.sequence, entry.rows["id"].to_pylist()) for entry in seen]


def test_a_caller_that_was_interrupted_may_use_its_buffer_again(tmp_path):
    """Its change is in the group of another thread, which has not encoded it yet."""
    log, _ = open_log(tmp_path)
    seen, first = [], threading.Event()
    journal = Journal(log, seen.extend, last=0)

    def hold():
        first.wait(20)
        return encoded(1)

    holder = threading.Thread(target=journal.commit, args=(Kind.ROWS, hold), kwargs={"reserved": 0})
    holder.start()
    wait_until(lambda: journal._group)
    ticket = _Ticket(Kind.ROWS, lambda: encoded(666), 0)
    journal._group.append(ticket)  # as if it had come before the turn began
    journal._leave(ticket, KeyboardInterrupt())
    first.set()
    holder.join()
    log.close()

    assert [entry.rows["id"].to_pylist() for entry in seen] == [[1]]
    assert [found for _, _, found in open_log(tmp_path)[1]] == [[1]]


def test_everybody_in_a_group_is_told_that_it_failed(tmp_path, monkeypatch):
    log, _ = open_log(tmp_path)
    journal = Journal(log, lambda _: None, last=0)
    monkeypatch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "broken")))
    failures = []

    def commit():
        try:
            put(journal, 1)
        except HotLogError as error:
            failures.append(error)

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 8


def test_a_log_is_open_once(tmp_path):
    lock = DirectoryLock(tmp_path)
    with pytest.raises(HotLogLockedError, match="open already"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_no_other_user_can_enter_a_new_log(tmp_path, usual_umask):
    DirectoryLock(tmp_path / "logs" / "events").release()

    assert stat.S_IMODE((tmp_path / "logs" / "events").stat().st_mode) == 0o700


def test_a_directory_that_was_made_for_a_log_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o750)
    DirectoryLock(tmp_path).release()

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_a_log_knows_which_table_and_key_it_is_of(tmp_path):
    asked = {"table": "file:///t", "table_id": "1", "key": ("id",), "writer_id": None}
    manifest = claim(tmp_path, **asked)

    assert claim(tmp_path, **asked) == manifest
    with pytest.raises(HotLogError, match="was at"):
        claim(tmp_path, **{**asked, "table_id": "2"})
    with pytest.raises(ValidationError, match="key"):
        claim(tmp_path, **{**asked, "key": ()})
    with pytest.raises(ValidationError, match="writer_id"):
        claim(tmp_path, **{**asked, "writer_id": "me"})
    (tmp_path / "hot.json").write_text("{")
    with pytest.raises(HotLogError, match="does not say"):
        claim(tmp_path, **asked)
