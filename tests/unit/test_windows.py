"""Windows of policies, around both changes of the clock, against a check of every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehand.service.schedules import Schedule
from lakehand.service.windows import Window, Windows
from support.window_model import is_due, open_minutes

#: Zones whose clocks are moved by an hour, at other times of the day, or by half an hour.
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Pacific/Chatham",
    "Australia/Lord_Howe",
]
HOURS, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def changes_of(zone):
    """Return the days of 2026 on which the clock of a zone is moved."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + 24 * HOURS * day for day in range(365)]
    return [
        day
        for day in days
        if day.astimezone(ZoneInfo(zone)).utcoffset()
        != (day + 24 * HOURS).astimezone(ZoneInfo(zone)).utcoffset()
    ]


CHANGES = [(zone, day) for zone in ZONES for day in changes_of(zone)]


def window(expression, hours, **options):
    return Window(opens=Schedule.parse(expression), duration=hours * HOURS, **options)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize(
    "expression",
    ["0 2 * * *", "*/15 * * * *", "15 1,2 * * *", "30 */2 * * *", "45 2 * * 0", "10 1-3 * * *"],
)
def test_times_around_a_change_of_the_clock_are_those_that_every_minute_says(zone, day, expression):
    schedule, place = Schedule.parse(expression), ZoneInfo(zone)
    start = day - 12 * HOURS
    due = [
        moment
        for n in range(int(48 * HOURS / MINUTE))
        if is_due(expression, place, moment := start + n * MINUTE)
    ]
    at, found = start - MINUTE, []
    while (at := schedule.next_after(at, place)) < start + 48 * HOURS:
        found.append(at)
    assert found == due
    for one, following in pairwise(due):
        assert schedule.last_until(following - timedelta(seconds=1), place) == one
        assert schedule.last_until(following, place) == following


expressions = st.builds(
    "{} {} * * {}".format,
    st.sampled_from(["0", "30", "15", "*/20"]),
    st.sampled_from(["2", "1", "22", "0,12", "*/6"]),
    st.sampled_from(["*", "1-5", "0,6"]),
)
some = st.lists(
    st.builds(window, expressions, st.sampled_from([0.5, 1, 3, 7, 24])), min_size=0, max_size=2
)


@settings(max_examples=12, derandomize=True, deadline=None)
@given(some, some, st.sampled_from(CHANGES))
def test_every_minute_around_a_change_of_the_clock_is_open_or_not_as_the_windows_say(
    opens, quiet, at
):
    zone, change = at
    windows = Windows(open=opens, quiet=quiet, zone=ZoneInfo(zone))
    start, end = change - 12 * HOURS, change + 36 * HOURS
    states = open_minutes(windows, start, end + 48 * HOURS)
    for minute in range(0, int((end - start) / MINUTE), 95):
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
