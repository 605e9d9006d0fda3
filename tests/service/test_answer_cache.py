"""Answers are made once for all who ask at the same time, and are never older than an event."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files

import pytest

from lakehand.service.store.events import record_event
from lakehand.web import answer_cache
from lakehand.web.answer_cache import KEPT_SECONDS, AnswerCache
from support.web_apps import WebApp, fill


class Maker:
    """Counts how often an answer is made."""

    def __init__(self, answer=b"x"):
        self.answer = answer
        self.count = 0
        self.begun = asyncio.Event()

    async def __call__(self):
        self.count += 1
        self.begun.set()
        number = self.count
        await asyncio.sleep(0.01)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer + str(number).encode()


def test_all_who_ask_at_once_get_one_answer():
    make = Maker()

    async def run():
        cache = AnswerCache(lambda: 7)
        found = await asyncio.gather(*(cache.get("a", make) for _ in range(200)))
        assert set(found) == {b"x1"}
        assert await cache.get("a", make) == b"x1"
        assert await cache.get("b", make) == b"x2"

    asyncio.run(run())


def test_a_client_that_goes_away_does_not_end_what_others_wait_for():
    make = Maker()

    async def run():
        cache = AnswerCache(lambda: 7)
        first = asyncio.create_task(cache.get("a", make))
        await make.begun.wait()
        second = asyncio.create_task(cache.get("a", make))
        first.cancel()
        assert await second == b"x1"

    asyncio.run(run())


@pytest.mark.parametrize("what", ["a change here", "an event of any server", "time"])
def test_an_old_answer_is_not_used_again(what):
    make, newest = Maker(), [7]

    async def run():
        cache = AnswerCache(lambda: newest[0], kept_seconds=0.05 if what == "time" else 60)
        assert await cache.get("a", make) == b"x1"
        assert await cache.get("a", make) == b"x1"
        if what == "time":
            await asyncio.sleep(0.06)
        elif what == "a change here":
            cache.note_change()
        else:
            newest[0] = 8
            # A page that reloads does so when the event is older than any answer.
            assert await cache.get("a", make, is_reload=True) == b"x1"
        assert await cache.get("a", make) == b"x2"

    asyncio.run(run())


def test_an_answer_that_was_begun_before_a_change_is_not_given_after_it():
    make = Maker()

    async def run():
        cache = AnswerCache(lambda: 7)
        before = asyncio.create_task(cache.get("a", make))
        await make.begun.wait()
        cache.note_change()
        assert await cache.get("a", make) == b"x2"
        assert await before == b"x1"

    asyncio.run(run())


def test_errors_and_large_answers_are_not_kept_and_the_number_is_bounded(monkeypatch):
    monkeypatch.setattr(answer_cache, "_MAX_ANSWERS", 3)
    failing, large, small = Maker(ValueError("no")), Maker(b"x" * 2**19), Maker()

    async def run():
        cache = AnswerCache(lambda: 7)
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await cache.get("a", failing)
            await cache.get("b", large)
        assert (failing.count, large.count) == (2, 2)
        for key in range(10):
            await cache.get(key, small)
        assert len(cache._kept) == 3

    asyncio.run(run())


# -- with the application --------------------------------------------------------------------------


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def web(database):
    made = WebApp(database, {"web": {"auth": "token"}}, kept_seconds=60)
    fill(made)
    return made


def test_pages_reload_later_than_answers_are_kept():
    script = files("lakehand.web").joinpath("static", "live.js").read_text()
    (delay,) = re.findall(r"}, (\d+)\);", script)
    assert int(delay) > 1000 * KEPT_SECONDS


def _as(web, role, name):
    return {"authorization": f"Bearer {web.tokens.create(name, role)[1]}"}


def test_a_kept_page_has_the_name_and_the_rights_of_who_asks(web):
    ana, ben, eve = (
        _as(web, "operator", "q-ana"),
        _as(web, "operator", "q-ben"),
        _as(web, "viewer", "q-eve"),
    )
    pages = {name: web.ask("GET", "/jobs/4", **who).text for name, who in
             (("q-ana", ana), ("q-ben", ben), ("q-eve", eve))}  # fmt: skip
    for name, page in pages.items():
        assert f"<span>{name}</span>" in page
        assert not any(other in page for other in {"q-ana", "q-ben", "q-eve"} - {name})
        assert ("/jobs/4/cancel" in page) == (name != "q-eve")


def test_who_changes_something_sees_it_at_once(web):
    ana = _as(web, "operator", "ana")
    for verb, word in (("pause", "Resume"), ("resume", "Pause"), ("pause", "Resume")):
        assert web.ask("POST", f"/api/v1/jobs/4/{verb}", {}, **ana).status == 200
        assert f">{word}</button>" in web.ask("GET", "/jobs/4", **ana).text


def test_what_happened_elsewhere_is_seen_with_its_event(web, database):
    ana = _as(web, "operator", "ana")
    assert web.ask("GET", "/api/v1/jobs/4", **ana).json["state"] == "queued"
    web.jobs.cancel(4, by="another process")
    assert web.ask("GET", "/api/v1/jobs/4", **ana).json["state"] == "cancelled"
    with database.transaction() as connection:
        record_event(connection, database.now(), "service.paused", by="another process")
    assert web.ask("GET", "/api/v1/events", **ana).json["events"][0]["kind"] == "service.paused"
