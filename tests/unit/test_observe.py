from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from datetime import timedelta

import pytest

from lakehand.cli.progress_bar import progress_bar
from lakehand.observe import Event, Progress, configure_logging, get_logger, log_event
from lakehand.observe.clock import ManualClock, SystemClock
from lakehand.observe.logs import JsonFormatter
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
    assert captured.err == "WARNING lakehand: Shown\n"


def test_an_event_lists_its_fields():
    assert Event(name="x").fields() == {"name": "x"}


def test_no_bar_is_drawn_where_nobody_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar() as on_progress:
        assert on_progress is None


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar() as on_progress:
        on_progress(Progress(phase="write", done=1, total=4, unit="groups"))
        on_progress(Progress(phase="write", done=4, total=4, unit="groups"))
    assert "write" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


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
