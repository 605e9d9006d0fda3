from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from datetime import timedelta

import pytest

from lakehand.cli.progress_bar import progress_bar
from lakehand.observe import (
    Progress,
    configure_logging,
    emit,
    get_logger,
    log_event,
    reported,
    subscribe,
    telling,
)
from lakehand.observe.clock import ManualClock, SystemClock
from lakehand.observe.emit import JsonFormatter
from lakehand.observe.steps import Step, listen, reached


@pytest.fixture
def lakehand_logger():
    """Give the logger back as it was."""
    logger = logging.getLogger("lakehand")
    handlers, level = logger.handlers, logger.level
    yield logger
    logger.handlers, logger.level = handlers, level


def test_a_library_says_nothing_by_default():
    program = (
        "from lakehand.observe import get_logger, log_event; import logging;"
        "log_event(get_logger('x'), logging.ERROR, 'it_broke', 'It broke')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_a_record_carries_its_event_name_and_fields(caplog):
    with caplog.at_level(logging.INFO, "lakehand"):
        log_event(get_logger("x"), logging.INFO, "file_written", "Wrote %s", "a", bytes=7)
    record = caplog.records[0]
    assert (record.name, record.event) == ("lakehand.x", "file_written")
    assert (record.getMessage(), record.fields) == ("Wrote a", {"bytes": 7})


def test_json_records_are_one_object_a_line(lakehand_logger, capsys):
    configure_logging(level="info", form="json")
    log_event(lakehand_logger, logging.INFO, "file_written", "Wrote %s\n", "a", bytes=7)
    lines = capsys.readouterr().err.splitlines()
    document = json.loads(lines[0])
    assert len(lines) == 1
    assert document["event"] == "file_written"
    assert (document["level"], document["bytes"]) == ("info", 7)


def test_json_records_carry_the_exception():
    formatter = JsonFormatter()
    try:
        int("no")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "m", (), sys.exc_info())
    assert "ValueError: invalid literal" in json.loads(formatter.format(record))["exception"]


def test_text_records_are_sentences_on_stderr(lakehand_logger, capsys):
    configure_logging(level="warning", form="text")
    log_event(lakehand_logger, logging.INFO, "quiet", "Not shown")
    log_event(lakehand_logger, logging.WARNING, "loud", "Shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(" WARNING lakehand: Shown\n")


def test_subscribers_hear_everything_until_they_leave():
    first, second = [], []
    with subscribe(first.append):
        emit("a")
        subscription = subscribe(second.append)
        emit("b")
    emit("c")
    subscription.close()
    subscription.close()
    emit("d")
    assert (first, second) == (["a", "b"], ["b", "c"])


def test_a_subscriber_that_raises_is_logged_and_the_others_hear(caplog):
    def fail(_event):
        raise ValueError("bad subscriber")

    heard = []
    with subscribe(fail), subscribe(heard.append):
        assert reported(lambda: "report")() == "report"
    assert heard == ["report"]
    assert [record.event for record in caplog.records] == ["subscriber_failed"]
    assert "bad subscriber" in caplog.text


def test_progress_is_emitted_with_its_operation_then_handed_on():
    emitted, told = [], []
    tell = telling(told.append, operation="compact", table="file:///t")
    with subscribe(emitted.append):
        tell(Progress(phase="read", done=1))
    assert emitted == told
    assert (told[0].operation, told[0].table, told[0].phase) == ("compact", "file:///t", "read")


def test_what_a_callback_for_progress_raises_stops_the_operation():
    def stop(_progress):
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        telling(stop, operation="vacuum", table="")(Progress(phase="scanning", done=0))


class _Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, is_terminal):
    stream = _Stream(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar():
        emit(Progress(phase="write", done=1, total=4, unit="groups"))
        emit("a report")
        emit(Progress(phase="write", done=4, total=4, unit="groups"))
    emit(Progress(phase="later", done=1))
    assert ("4/4" in stream.getvalue()) is is_terminal
    assert ("write" in stream.getvalue()) is is_terminal
    assert "later" not in stream.getvalue()


def test_a_manual_clock_moves_only_when_told_to():
    clock = ManualClock()
    before = clock.now()
    clock.sleep(30)
    clock.advance(30)
    assert clock.now() - before == timedelta(minutes=1)
    assert (clock.monotonic(), clock.sleeps) == (60.0, [30])


def test_the_system_clock_is_aware_and_runs_forward():
    clock = SystemClock()
    start = clock.monotonic()
    clock.sleep(0)
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() >= start


def test_steps_are_heard_while_somebody_listens():
    heard = []
    listen(heard.append)
    reached(Step.COMMIT_PUT)
    listen(None)
    reached(Step.COMMIT_CONFIRMED)
    assert heard == [Step.COMMIT_PUT]
