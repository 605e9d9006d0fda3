"""The core of the format protocol stays small, and optional protocols say who supports what."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from lakehand.errors import RefusedError
from lakehand.formats import optional, worker
from lakehand.formats.base import Format, FormatTable, require_support
from lakehand.formats.delta.table import DeltaFormat, DeltaTable
from lakehand.formats.delta.worker import DeltaWorker
from lakehand.formats.lance.table import LanceFormat, LanceTable
from lakehand.formats.lance.worker import LanceWorker
from lakehand.formats.optional import (
    SupportsCheckpoints,
    SupportsCreation,
    SupportsPolling,
    SupportsSummaries,
    SupportsTags,
)
from lakehand.formats.rows import ChangeFeedWorker, RowChangeWorker
from lakehand.formats.worker import FormatWorker
from lakehand.storage import open_store
from support.manifest_format import ManifestFormat, ManifestTable, ManifestWorker

PAGE = Path(__file__).parent.parent.parent / "docs/contributing/add-a-format.md"
OPTIONAL = {
    name: protocol
    for name, protocol in vars(optional).items()
    if name.startswith("Supports")
    and protocol not in (SupportsCreation, SupportsPolling, SupportsSummaries)
}
#: What a format does not support; everything else it does.
MISSING = {
    DeltaTable: {"SupportsIndices", "SupportsNativeRewrite", "SupportsPredicateReads"}
    | {"SupportsTags"},
    LanceTable: {"SupportsByteCopy", "SupportsChangeFeed", "SupportsCheckpoints"}
    | {"SupportsClusteringColumns"}
    | {"SupportsProperties", "SupportsRemovedFiles", "SupportsStatistics", "SupportsStreams"},
    ManifestTable: set(OPTIONAL),
}


def members(protocol):
    """Return the methods and properties of a protocol, without its attributes."""
    found = inspect.getmembers_static(protocol, lambda m: inspect.isfunction(m) or _is_property(m))
    return {name for name, _ in found if not name.startswith("_")}


def _is_property(member):
    return isinstance(member, property)


def opened(kind):
    return kind(open_store(f"memory://{kind.__name__}"))


def test_a_format_has_to_implement_few_methods():
    counts = [len(members(protocol)) for protocol in (Format, FormatTable, FormatWorker)]
    assert counts == [2, 12, 11]


@pytest.mark.parametrize(
    ("protocol", "kinds"),
    [
        (Format, [DeltaFormat, LanceFormat, ManifestFormat]),
        (FormatTable, [DeltaTable, LanceTable, ManifestTable]),
        (FormatWorker, [DeltaWorker, LanceWorker, ManifestWorker]),
        (RowChangeWorker, [DeltaWorker, LanceWorker]),
        (ChangeFeedWorker, [DeltaWorker]),
    ],
)
def test_every_format_implements_what_it_says(protocol, kinds):
    for kind in kinds:
        known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
        assert members(protocol) <= known, kind


def test_the_skeleton_implements_the_core_and_nothing_else():
    own = {name for kind in (ManifestTable, ManifestWorker) for name in vars(kind)}
    assert {n for n in own if n[0] != "_"} <= {
        *members(FormatTable),
        *members(FormatWorker),
        "capabilities",
    }


@pytest.mark.parametrize("kind", MISSING)
def test_what_each_format_supports_is_known(kind):
    table = opened(kind)
    assert {n for n, one in OPTIONAL.items() if not isinstance(table, one)} == MISSING[kind]


def test_support_is_asked_for_by_protocol_and_refused_with_the_reason():
    lance, delta = opened(LanceTable), opened(DeltaTable)
    assert require_support(delta, SupportsCheckpoints, operation="checkpoint") is delta
    with pytest.raises(RefusedError, match="complete in itself"):
        require_support(lance, SupportsCheckpoints, operation="checkpoint")
    with pytest.raises(RefusedError, match=r"tag is not possible on memory:.* does not support it"):
        require_support(delta, SupportsTags, operation="tag")


def test_the_page_on_formats_lists_every_method_and_every_protocol():
    named = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    methods = members(Format) | members(FormatTable) | members(FormatWorker)
    workers = {name for name in vars(worker) if name.endswith("Worker")}
    assert (
        methods
        | workers
        | set(OPTIONAL)
        | {"SupportsCreation", "SupportsPolling", "SupportsSummaries"}
    ) - named == set()
