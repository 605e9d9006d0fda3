"""The adds in force as a replay of the log gives them, with every member that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.delta.log.log_source import open_log_source
from lakehand.formats.delta.log.replay import ADD_MEMBERS, live_relation

if TYPE_CHECKING:
    from lakehand.formats.delta.log.listing import LogSegment
    from lakehand.storage import Store


def streamed_adds(store: Store, segment: LogSegment) -> list[dict[str, Any]]:
    with open_log_source(store, segment) as source:
        relation = live_relation(source, "add", tuple(ADD_MEMBERS))
        adds = source.stream(f"SELECT * EXCLUDE path_key FROM {relation}").read_all()
        return adds.to_pylist(maps_as_pydicts="strict")
