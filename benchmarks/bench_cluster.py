"""Clustering beside its peers, in one run: how long it takes, and what queries have of it.

12 M rows are put in order along two columns, by lakehand in one task, by many tasks (which hand
pieces on in files, or by Spark's shuffle on a cluster) and along Hilbert's curve, by delta-rs and
by delta-spark. All take turns, each time on a fresh copy of the table. Then ten selective queries
are asked of every output, through delta-spark and through DuckDB, and all must give the answers of
the table before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median as median_of
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from contents import content_after, content_before
from contest import Contender, ContenderError
from goals import Verdict
from lineitem import make_lineitem
from sections import ROOT, Section, ask, circumstances, head, in_words, median, row
from selective import Questions
from tpch import Workload, link_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CACHE = ROOT / ".cache" / "bench"
MIB = 2**20
COLUMNS = ("l_shipdate", "l_partkey")
FULL_ROWS, LINEAR_ROWS, FEW_ROWS, FILES = 12_000_000, 10_000_000, 1_000_000, 10
TARGET_MIB, LEAST_RUNS = 16, 3
LAKEHAND = ("lakehand-spark", "lakehand-local")
OURS = (*LAKEHAND, "lakehand-cluster")
LABELS = {
    "lakehand-spark": "**lakehand** on Spark",
    "lakehand-cluster": "**lakehand** on two Spark executors",
    "lakehand-local": "**lakehand** without Spark",
    "delta-rs": "delta-rs `z_order`",
    "delta-spark": "delta-spark `ZORDER`",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is asked for."""

    title: str
    contenders: tuple[str, ...] = LAKEHAND
    rows: int = FULL_ROWS
    #: What peers do not know of, and so do not look at.
    wish: Mapping[str, Any] = field(default_factory=lambda: {"curve": "zorder"})


WORKS = {
    "zorder": Work(title="z-order", contenders=(*LAKEHAND, "delta-rs", "delta-spark")),
    "shuffle": Work(
        title="z-order by many tasks",
        contenders=OURS,
        wish={"curve": "zorder", "sort_task_bytes": 0},
    ),
    "hilbert": Work(title="Hilbert", wish={"curve": "hilbert"}),
    "linear": Work(title="linear, 10 M rows", rows=LINEAR_ROWS, wish={"curve": "linear"}),
    "few": Work(title="z-order, 1 M rows", rows=FEW_ROWS),
}
WAYS = tuple((work, name) for work, asked in WORKS.items() for name in asked.contenders)
#: Work, peer of the z-order, how many times its speed at least.
FASTER = (
    ("zorder", "delta-rs", 2),
    ("zorder", "delta-spark", 5),
    ("shuffle", "delta-rs", 1.5),
    ("shuffle", "delta-spark", 4),
)
#: Work, seconds at most.
UNDER = (("linear", 60), ("few", 30))
TITLES = (
    "", "median s", "worst s", "against lakehand", "CPU s", "peak MiB", "files", "MB", "rows"
)  # fmt: skip
QUERY_TITLES = (
    "ten queries", "files", "skip rate", "files read by Spark", "Spark median s",
    "worst s", "files read by DuckDB", "DuckDB median s", "worst s", "answers",
)  # fmt: skip


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        SECTION.keep(found, is_full=is_full(found))
        if not is_full(found):
            return
    found = SECTION.draw()
    rows = next(_about_rows(found))
    sys.exit(0 if rows.is_met else f"other rows or answers: {rows.found}")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = int(os.environ.get("LAKEHAND_BENCH_ROWS", FULL_ROWS))
    options.add_argument("--rows", type=int, default=rows, help="of the largest table")
    options.add_argument("--only", nargs="+", choices=WORKS, default=tuple(WORKS))
    options.add_argument("--peers", nargs="+", choices=LABELS, default=tuple(LABELS))
    options.add_argument("--runs", type=int, default=5, help="of each contender")
    options.add_argument("--spark-runs", type=int, help="of delta-spark, if fewer")
    options.add_argument("--query-runs", type=int, default=3)
    options.add_argument("--timeout", type=float, default=900, help="seconds for one run")
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def is_full(found: dict[str, Any]) -> bool:
    """Say whether these results may stand in the documentation."""
    often = (
        len(result["runs"]) >= LEAST_RUNS or name.endswith("delta-spark") or "error" in result
        for name, result in found["results"].items()
    )
    is_whole = set(found["results"]) == {_key(*way) for way in WAYS}
    return found["rows"] == FULL_ROWS and is_whole and all(often)


def _key(work: str, contender: str) -> str:
    return f"{work} {contender}"


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Let all contenders work in turns; then compare and query what they left."""
    CACHE.mkdir(parents=True, exist_ok=True)
    ways = [way for way in WAYS if way[0] in chosen.only and way[1] in chosen.peers]
    sources = {
        WORKS[work].rows: _source(WORKS[work].rows, chosen.rows) for work in ("few", *chosen.only)
    }
    around = circumstances()
    with ExitStack() as stack:
        # A JVM that is ending may still tidy up in it, and results must not be lost for that.
        folder = TemporaryDirectory(prefix="cluster-", dir=CACHE, ignore_cleanup_errors=True)
        scratch = Path(stack.enter_context(folder))
        contenders = {
            name: stack.enter_context(Contender(name, scratch, timeout_seconds=chosen.timeout))
            for name in LABELS
            if name in {contender for _, contender in ways}
        }
        contest = _Contest(contenders, sources, scratch)
        for way in ways:
            contest.warm_up(*way)
        results = contest.run(ways, _runs(chosen))
        contents = contest.compare(results)
        queries = contest.query(results, chosen.query_runs) if FULL_ROWS in sources else {}
    return {**around, "rows": chosen.rows, **contents, "results": results, "queries": queries}


def _source(rows: int, most: int) -> Path:
    return make_lineitem(CACHE, files=FILES, rows=round(rows * most / FULL_ROWS))


def _runs(chosen: argparse.Namespace) -> dict[str, int]:
    runs = dict.fromkeys(LABELS, chosen.runs)
    return runs | {"delta-spark": chosen.spark_runs or chosen.runs}


class _Contest:
    """Contenders, the tables that they start from, and the place of what they leave."""

    def __init__(
        self, contenders: Mapping[str, Contender], sources: Mapping[int, Path], scratch: Path
    ) -> None:
        self._contenders = contenders
        self._sources = sources
        self._scratch = scratch

    def warm_up(self, work: str, name: str) -> None:
        """Have imports, sessions and compiled code ready."""
        self._once(work, name, self._sources[FEW_ROWS], {})

    def run(self, ways: Sequence[tuple[str, str]], runs: Mapping[str, int]) -> dict[str, Any]:
        """Let everybody work as often as `runs` says, another one first each time."""
        results: dict[str, Any] = {_key(*way): {"runs": []} for way in ways}
        for number in range(max(runs.values())):
            first = number % len(ways)
            for work, name in (*ways[first:], *ways[:first]):
                if number < runs[name]:
                    source = self._sources[WORKS[work].rows]
                    self._once(work, name, source, results[_key(work, name)])
        return results

    def _once(self, work: str, name: str, source: Path, result: dict[str, Any]) -> None:
        table = self._place(_key(work, name))
        shutil.rmtree(table, ignore_errors=True)
        link_tree(source, table)
        os.sync()
        wish = {"by": COLUMNS, "target_file_bytes": TARGET_MIB * MIB, **WORKS[work].wish}
        measured = ask(self._contenders[name], result, "cluster", table=str(table), wish=wish)
        if measured is not None:
            took = f"{measured.seconds:7.2f} s   cpu {measured.cpu_seconds:7.2f} s"
            print(f"{_key(work, name):24} {took}", file=sys.stderr, flush=True)

    def _place(self, key: str) -> Path:
        return self._scratch / key.replace(" ", "-")

    def compare(self, results: dict[str, Any]) -> dict[str, Any]:
        """Say of every output what it holds, and whether these are the rows of its source."""
        before = {
            rows: content_before(self._workload(source)) for rows, source in self._sources.items()
        }
        for key, result in results.items():
            if "error" in result:
                continue
            work, name = key.split()
            source = self._sources[WORKS[work].rows]
            after = content_after(self._workload(source), name, self._place(key))
            expected = before[WORKS[work].rows]
            result["after"] = asdict(after)
            result["is_equal"] = (after.rows, after.digest) == (expected.rows, expected.digest)
        return {"before": asdict(before[max(before)])}

    def _workload(self, source: Path) -> Workload:
        return Workload(
            name="cluster", table=source, target_file_bytes=TARGET_MIB * MIB, files_out=1
        )

    def query(self, results: Mapping[str, Any], runs: int) -> dict[str, Any]:
        """Ask the same of the table before and of all outputs of its rows, in turns."""
        source = self._sources[FULL_ROWS]
        tables = {"before": source} | {
            key: self._place(key)
            for key, result in results.items()
            if "error" not in result and WORKS[key.split()[0]].rows == FULL_ROWS
        }
        questions = Questions(source, COLUMNS)
        asked: dict[str, Any] = {key: {"runs": []} for key in tables}
        for number in range(1 + runs):  # the first one warms up
            for key, table in tables.items():
                answered = {"duckdb": questions.by_duckdb(table), **self._spark(questions, table)}
                if number:
                    asked[key]["runs"].append(answered)
        for key, table in tables.items():
            asked[key] |= {"skip_rate": questions.skip_rate(table)}
        return _judged(asked)

    def _spark(self, questions: Questions, table: Path) -> dict[str, Any]:
        if "delta-spark" not in self._contenders:
            return {}
        try:
            return {"spark": questions.by_spark(self._contenders["delta-spark"], table)}
        except ContenderError as error:
            print(f"delta-spark cannot read {table.name}: {error}", file=sys.stderr)
            return {}


def _judged(asked: dict[str, Any]) -> dict[str, Any]:
    """Say whose answers are those of DuckDB on the table before, and forget the answers."""
    wanted = asked["before"]["runs"][0]["duckdb"]["answers"]
    for result in asked.values():
        answers = [reader.pop("answers") for run in result["runs"] for reader in run.values()]
        result["is_equal"] = all(answer == wanted for answer in answers)
    return asked


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    subject = f"{found['rows']:,} rows in {FILES} files, into files of {TARGET_MIB} MiB"
    base = median(found["results"].get(_key("zorder", LAKEHAND[0]), {}), "seconds")
    before = found["before"]
    first = ("", "", "", "", "", str(before["files"]), _megabytes(before), f"{before['rows']:,}")
    lines = [in_words(found, subject), "", *head(TITLES), row("*before*", *first, width=9)]
    lines += [_line(key, result, base) for key, result in found["results"].items()]
    lines += ["", *head(QUERY_TITLES)]
    lines += [_query_line(key, found) for key in found["queries"]]
    lines += ["", _counts(found), ""]
    lines += [f"- {one.goal}: {one.found}, **{one.word}**" for one in verdicts(found)]
    return "\n".join(lines)


def _label(key: str) -> str:
    if key == "before":
        return "*before*"
    work, contender = key.split()
    return LABELS[contender] + (f", {WORKS[work].title}" if contender in OURS else "")


def _line(key: str, result: dict[str, Any], base: float | None) -> str:
    seconds, after = median(result, "seconds"), result.get("after")
    if seconds is None or after is None:
        return row(_label(key), result.get("error", "not run"), width=len(TITLES))
    is_comparable = base and key.startswith(("zorder", "shuffle"))
    return row(
        _label(key),
        f"{seconds:.1f}",
        f"{max(run['seconds'] for run in result['runs']):.1f}",
        f"{seconds / base:.2f}x" if is_comparable else "",
        f"{median(result, 'cpu_seconds'):.1f}",
        f"{max(run['peak_mib'] for run in result['runs']):,}",
        str(after["files"]),
        _megabytes(after),
        "equal" if result["is_equal"] else f"**wrong: {after['rows']:,}**",
        width=len(TITLES),
    )


def _megabytes(content: Mapping[str, Any]) -> str:
    return f"{content['bytes'] / 1e6:.1f}"


def _query_line(key: str, found: dict[str, Any]) -> str:
    asked = found["queries"][key]
    after = found["before"] if key == "before" else found["results"][key]["after"]
    cells = [_label(key), str(after["files"]), f"{asked['skip_rate']:.1%}"]
    for reader in ("spark", "duckdb"):
        runs = [run[reader] for run in asked["runs"] if reader in run]
        seconds = [run["seconds"] for run in runs]
        times = [f"{median_of(seconds):.2f}", f"{max(seconds):.2f}"] if runs else ["", ""]
        cells += [str(runs[0]["files_read"]) if runs else "not asked", *times]
    cells.append("equal" if asked["is_equal"] else "**not equal**")
    return row(*cells, width=len(QUERY_TITLES))


def _counts(found: dict[str, Any]) -> str:
    by_count: dict[int, list[str]] = {}
    for key, result in found["results"].items():
        by_count.setdefault(len(result["runs"]), []).append(_label(key).replace("*", ""))
    most = max(by_count, key=lambda count: len(by_count[count]))
    fewer = [f"{count} of {', '.join(who)}" for count, who in by_count.items() if count != most]
    return f"Runs: {', '.join([f'{most} of each', *(f'but {one}' for one in fewer)])}."


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    """Judge lakehand by the goals of its works, as far as those took part."""
    return [*_about_time(found["results"]), *_about_rows(found)]


def _about_time(results: Mapping[str, Any]) -> Iterator[Verdict]:
    for work, peer, limit in FASTER:
        theirs = median(results.get(_key("zorder", peer), {}), "seconds")
        for key, ours in _ours(results, work):
            if theirs is not None:
                goal = f"{_plain(key)}: at least {limit:g} times as fast as {peer}"
                ratio = theirs / ours
                yield Verdict(goal=goal, found=f"{ratio:.2f} times", is_met=ratio >= limit)
    for work, limit in UNDER:
        for key, ours in _ours(results, work):
            goal = f"{_plain(key)}: under {limit} s"
            yield Verdict(goal=goal, found=f"{ours:.1f} s", is_met=ours < limit)


def _about_rows(found: Mapping[str, Any]) -> Iterator[Verdict]:
    unequal = [key for key, result in found["results"].items() if not result.get("is_equal", True)]
    unequal += [key for key, asked in found["queries"].items() if not asked["is_equal"]]
    said = ", ".join(unequal) or "all are equal"
    yield Verdict(goal="the same rows and answers", found=said, is_met=not unequal)


def _ours(results: Mapping[str, Any], work: str) -> Iterator[tuple[str, float]]:
    for name in OURS:
        seconds = median(results.get(_key(work, name), {}), "seconds")
        if seconds is not None:
            yield _key(work, name), seconds


def _plain(key: str) -> str:
    return _label(key).replace("*", "")


SECTION = Section(name="cluster", table=table)

if __name__ == "__main__":
    main()
