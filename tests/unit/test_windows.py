"""Windows of policies, around both changes of the clock, against a check of every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.service.schedules import Schedule
from lakehand.service.windows import Window, Windows

#: Zones with both changes, with half-hour offsets, and with none.
ZONES = ["Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kolkata", "UTC"]
#: Days on which one of these zones changes its clock.
CHANGES = [
    datetime(2026, 3, 29, tzinfo=UTC),
    datetime(2026, 10, 25, tzinfo=UTC),
    datetime(2026, 3, 8, tzinfo=UTC),
    datetime(2026, 11, 1, tzinfo=UTC),
    datetime(2026, 4, 5, tzinfo=UTC),
    datetime(2026, 10, 4, tzinfo=UTC),
]
HOURS = timedelta(hours=1)


def window(expression, hours, **options):
    return Window(opens=Schedule.parse(expression), duration=hours * HOURS, **options)


def openings(one, zone, start, end):
    """Return all times at which a window opens, from long before a period to its end."""
    times = CronSim(one.opens.expression, (start - 40 * 24 * HOURS).astimezone(zone))
    found = []
    while (at := next(times, None)) is not None and at.astimezone(UTC) <= end:
        found.append(at.astimezone(UTC))
    return found


def open_minutes(windows, start, end):
    """Return whether each minute of a period is open, by looking at every window."""
    minutes = int((end - start) / timedelta(minutes=1))
    states = [not windows.open] * minutes
    for group, state in ((windows.open, True), (windows.quiet, False)):
        for one in group:
            for at in openings(one, windows.zone, start, end):
                first = int((at - start) / timedelta(minutes=1))
                last = int((at + one.duration - start) / timedelta(minutes=1))
                for minute in range(max(first, 0), min(last, minutes)):
                    states[minute] = state
    return states


expressions = st.builds(
    "{} {} * * {}".format,
    st.sampled_from(["0", "30", "15"]),
    st.sampled_from(["2", "1", "22", "0,12", "*/6"]),
    st.sampled_from(["*", "1-5", "0,6"]),
)
some = st.lists(
    st.builds(window, expressions, st.sampled_from([0.5, 1, 3, 7, 24])), min_size=0, max_size=2
)


@settings(max_examples=40, derandomize=True)
@given(some, some, st.sampled_from(ZONES), st.sampled_from(CHANGES))
def test_every_minute_around_a_change_of_the_clock_is_open_or_not_as_the_windows_say(
    opens, quiet, zone, change
):
    windows = Windows(open=opens, quiet=quiet, zone=ZoneInfo(zone))
    start, end = change - 12 * HOURS, change + 36 * HOURS
    states = open_minutes(windows, start, end + 48 * HOURS)
    for minute in range(0, int((end - start) / timedelta(minutes=1)), 45):
        moment = start + timedelta(minutes=minute)
        assert windows.is_open(moment) == states[minute], moment
        check_opening(windows.next_opening(moment), states, start, minute)


def check_opening(opening, states, start, minute):
    """Compare an opening with the states of minutes, as far as they are known."""
    first = next((n for n in range(minute, len(states)) if states[n]), None)
    if first is None:
        assert opening is None or opening.opens_at >= start + timedelta(minutes=len(states))
        return
    assert opening.opens_at == start + timedelta(minutes=first)
    last = next((n for n in range(first, len(states)) if not states[n]), None)
    if last is not None:
        assert opening.closes_at == start + timedelta(minutes=last)


def test_without_windows_jobs_may_always_run():
    now = datetime(2026, 11, 17, tzinfo=UTC)
    opening = Windows(zone=ZoneInfo("UTC")).next_opening(now)
    assert (opening.opens_at, opening.closes_at) == (now, None)


def test_windows_that_never_open_have_no_opening():
    now = datetime(2026, 11, 17, tzinfo=UTC)
    always_quiet = Windows(quiet=[window("* * * * *", 1)], zone=ZoneInfo("UTC"))
    assert always_quiet.next_opening(now) is None


@pytest.mark.parametrize(
    ("moment", "opens", "closes"),
    [
        ("2026-11-17T12:00", "2026-11-17T21:00", "2026-11-18T04:00"),
        ("2026-11-17T23:00", "2026-11-17T23:00", "2026-11-18T04:00"),
        # The week-end is open from Friday evening on, without a gap to Saturday's window.
        ("2026-11-20T21:30", "2026-11-20T21:30", "2026-11-22T23:00"),
    ],
)
def test_a_night_and_a_week_end_in_berlin(moment, opens, closes):
    windows = Windows(
        open=[window("0 22 * * 1-5", 7), window("0 0 * * 0,6", 24)], zone=ZoneInfo("Europe/Berlin")
    )
    found = windows.next_opening(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert found.opens_at.isoformat()[:16] == opens
    assert found.closes_at.isoformat()[:16] == closes
