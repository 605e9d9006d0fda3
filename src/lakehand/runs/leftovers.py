"""Files that a run may have written and that no version refers to."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import asdict, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from lakehand.runs.ledger_records import Reservation, numbered_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakehand.runs.ledger import Run


def find_leftovers(run: Run, *, keep: Collection[str]) -> list[str]:
    """Return every file that tasks of `run` wrote, but for those in `keep`.

    Recorded results name their files; attempts that recorded nothing are found by their stems.
    """
    reservations = run.reservations()
    noted = recorded_files(run).union(*(item.files for item in reservations))
    return sorted((noted | {*_files_of_stems(run, reservations)}) - set(keep))


def noted_files(run: Run) -> set[str]:
    """Return the files that the ledger of a run names one by one, adopted ones included."""
    return recorded_files(run).union(*(item.files for item in run.reservations()))


def recorded_files(run: Run) -> set[str]:
    """Return the outputs in the results of a run, adopted ones included."""
    return {file.path for result in run.results() for file in result.outputs}


def disown(run: Run, paths: Collection[str]) -> None:
    """Take results out of the ledger of a run whose outputs belong to another run now.

    The ledger may outlive that other run, and must not be the end of what it committed.
    """
    results = [
        result for result in run.results() if any(file.path in paths for file in result.outputs)
    ]
    # By name at first, so that unreadable ones are deleted, too.
    run.discard(run.key("stems", f"{result.attempt}.json") for result in results)
    run.discard(run.key("stems", f"{stem}.json") for stem in stems_of(run, paths))
    run.discard(run.key("results", numbered_name(result.group)) for result in results)
    run.sync_records()


def stems_of(run: Run, paths: Collection[str]) -> set[str]:
    """Return the stems of attempts that wrote one of `paths`; those of a group may be many."""
    known, in_order = set(paths), sorted(paths)
    return {
        item.stem
        for item in run.reservations()
        if not known.isdisjoint(item.files) or _has_start(in_order, item)
    }


def _has_start(paths: Sequence[str], reservation: Reservation) -> bool:
    if reservation.directory is None:
        return any(path.rpartition("/")[2].startswith(reservation.stem) for path in paths)
    start = f"{reservation.directory}/".lstrip("/") + reservation.stem
    place = bisect_left(paths, start)
    return place < len(paths) and paths[place].startswith(start)


def note_written(run: Run, stem: str, keys: Sequence[str]) -> None:
    """Add to a reservation the names of files that do not start with its stem."""
    (found,) = (item for item in run.reservations() if item.stem == stem)
    named = replace(found, files=tuple(keys))
    run.store.put(run.key("stems", f"{stem}.json"), json.dumps(asdict(named)).encode())


def delete_leftovers(run: Run, *, keep: Collection[str]) -> list[str]:
    """Delete what `find_leftovers` finds and return it. The run's fate must allow it."""
    leftovers = find_leftovers(run, keep=keep)
    run.discard(leftovers)
    delete_unfinished(run)
    return leftovers


def delete_unfinished(run: Run) -> None:
    """Delete what killed tasks left half written, where a store has such a thing."""
    if not run.store.sees_unfinished_uploads:
        return
    reservations = run.reservations()
    stems = [reservation.stem for reservation in reservations]
    for directory in {reservation.directory or "" for reservation in reservations}:
        run.store.delete_unfinished(directory, names=stems)


def abort_uploads(run: Run) -> None:
    """Abort what the tasks of a dead run were sending to S3: its parts cost money, and stay."""
    for directory in {reservation.directory or "" for reservation in run.reservations()}:
        run.store.abort_uploads(f"{directory}/lakehand-{run.id}-".lstrip("/"))


def _files_of_stems(run: Run, reservations: Collection[Reservation]) -> Iterator[str]:
    stems = tuple(reservation.stem for reservation in reservations)
    if any(reservation.directory is None for reservation in reservations):
        for info in run.store.list():
            if info.key.rsplit("/", 1)[-1].startswith(stems):
                yield info.key
        return
    for directory in sorted({reservation.directory or "" for reservation in reservations}):
        yield from _files_in_directory(run, directory, stems)


def _files_in_directory(run: Run, directory: str, stems: tuple[str, ...]) -> Iterator[str]:
    """List only the keys that start as all stems of the run do."""
    prefix = f"{directory}/" if directory else ""
    start = f"{prefix}lakehand-{run.id}"
    listed = (info.key for info in run.store.list(directory, after=start))
    for key in takewhile(lambda key: key.startswith(start), listed):
        if key.removeprefix(prefix).startswith(stems):
            yield key
