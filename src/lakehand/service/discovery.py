"""Tables found by path, whose directories are listed until one is a table's, or in a catalog."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from lakehand.catalogs import open_catalog, split_catalog
from lakehand.errors import LakehandError, describe_error
from lakehand.formats.registry import format_of_root
from lakehand.service.store.records import FoundTable
from lakehand.service.url_patterns import (
    absolute_pattern,
    matches,
    matches_any,
    may_lead_to,
    split_pattern,
)
from lakehand.storage import open_store, path_to_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.service.config import ServiceConfig, SourceSection
    from lakehand.service.store.table_registry import TableRegistry
    from lakehand.storage import Store

#: Listings at a time: a remote store answers each in tens of milliseconds.
_AT_ONCE = 16
#: Directories deeper than this below a pattern's fixed part are not looked into.
_MAX_DEPTH = 12


@dataclass(slots=True)
class Discovered:
    """What a source has found."""

    tables: list[FoundTable] = field(default_factory=list)
    #: Directories that could not be listed, with the reason: what is below them is unknown.
    errors: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether a table that was not found is really gone."""
        return not self.errors


def discover(
    source: SourceSection, options_of: Callable[[str], Mapping[str, str] | None]
) -> Discovered:
    """List the directories of a source; `options_of` gives the storage options of a URL."""
    found = Discovered()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="discovery") as threads:
        for pattern in source.include:
            if named := split_catalog(pattern):
                _search_catalog(*named, source.exclude, found)
            else:
                _Search(absolute_pattern(pattern), source.exclude, found).run(threads, options_of)
    unique = {table.url: table for table in found.tables}
    found.tables = sorted(unique.values(), key=lambda table: table.url)
    return found


def _search_catalog(catalog: str, pattern: str, exclude: Sequence[str], found: Discovered) -> None:
    """List a catalog: `main.sales.*` are the tables of a schema; nothing means all."""
    excluded = [named[1] for named in map(split_catalog, exclude) if named and named[0] == catalog]
    try:
        for entry in open_catalog(catalog).tables():
            is_wanted = not pattern or fnmatchcase(entry.name, pattern)
            if not is_wanted or any(fnmatchcase(entry.name, one) for one in excluded):
                continue
            if entry.is_maintainable and entry.location:
                url = path_to_url(entry.location)
                found.tables.append(FoundTable(url=url, format=entry.format, name=entry.name))
    except LakehandError as error:
        found.errors.append({"url": f"{catalog}:{pattern}", **describe_error(error)})


def register_found(
    tables: TableRegistry, found: Discovered, *, source: str
) -> tuple[int, list[int]]:
    """Register what a source has found; return how many are new, and the ids of those gone."""
    if found.is_complete:
        return tables.see(found.tables, source=source)
    # What could not be listed may hold tables that are known: none of them is gone.
    return sum(tables.add(one, source=source)[1] for one in found.tables), []


class _Search:
    """The search below the fixed part of one pattern."""

    def __init__(self, pattern: str, exclude: Sequence[str], found: Discovered) -> None:
        self._base, rest = split_pattern(pattern)
        # A path without wildcards is a table, or a directory of tables.
        self._pattern = pattern if rest else f"{pattern}/**"
        self._exclude = exclude
        self._found = found

    def run(
        self,
        threads: ThreadPoolExecutor,
        options_of: Callable[[str], Mapping[str, str] | None],
    ) -> None:
        try:
            store = open_store(self._base, options_of(self._base))
        except LakehandError as error:
            self._failed(self._base, error)
            return
        pending: dict[Future[list[str]], str] = {threads.submit(_children, store, ""): ""}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for listing in done:
                prefix = pending.pop(listing)
                for child in self._look(prefix, listing):
                    pending[threads.submit(_children, store, child)] = child

    def _look(self, prefix: str, listing: Future[list[str]]) -> list[str]:
        """Take one listing; return the directories to list next."""
        url = f"{self._base}/{prefix}".rstrip("/")
        try:
            directories = listing.result()
        except LakehandError as error:
            self._failed(url, error)
            return []
        table_format = format_of_root(directories)
        if table_format is not None:
            if self.is_wanted(url):
                self._found.tables.append(_found(url, table_format))
            return []
        if prefix.count("/") >= _MAX_DEPTH:
            return []
        return [child for child in directories if self._may_hold_tables(child)]

    def is_wanted(self, url: str) -> bool:
        """Whether the pattern describes a URL, and none that is excluded does."""
        is_included = url == self._base or matches(url, self._pattern)
        return is_included and not matches_any(url, self._exclude)

    def _may_hold_tables(self, child: str) -> bool:
        name = child.rstrip("/").rsplit("/", 1)[-1]
        url = f"{self._base}/{child}".rstrip("/")
        if name.startswith((".", "_")) or "=" in name:
            return False
        is_excluded = any(
            matches(url, pattern) or matches(f"{url}/any", pattern)
            for pattern in self._exclude
            if pattern.endswith("**")
        )
        is_on_the_way = may_lead_to(url, self._pattern) or matches(url, self._pattern)
        return is_on_the_way and not is_excluded

    def _failed(self, url: str, error: LakehandError) -> None:
        self._found.errors.append({"url": url, **describe_error(error)})


def _children(store: Store, prefix: str) -> list[str]:
    directories, _ = store.list_directory(prefix)
    return directories


def source_of(config: ServiceConfig, url: str) -> SourceSection | None:
    """Return the source that finds a table at a URL; None if none does."""
    for source in config.sources:
        for pattern in (one for one in source.include if not split_catalog(one)):
            if _Search(absolute_pattern(pattern), source.exclude, Discovered()).is_wanted(url):
                return source
    return None


def find_table(url: str, options: Mapping[str, str] | None) -> FoundTable | None:
    """Look whether there is a table at a URL, by one listing."""
    table_format = format_of_root(_children(open_store(url, options), ""))
    return None if table_format is None else _found(url, table_format)


def _found(url: str, table_format: str) -> FoundTable:
    name = url.rsplit("/", 1)[-1].removesuffix(".lance")
    return FoundTable(url=url, format=table_format, name=name)
