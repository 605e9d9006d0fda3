"""Groups rewritten by Lance's own task, and fragments whose pages can be copied."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import CorruptFileError
from lakehand.formats.lance.connect import DATA_DIRECTORY, address, load_lance
from lakehand.formats.lance.deletions import FRAGMENT
from lakehand.formats.lance.fragments import described
from lakehand.formats.lance.staged import field_numbers
from lakehand.model.work import DataFile, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.storage import Store

#: A page of less than either makes scans slower, so it is worth rewriting.
_HEALTHY_BYTES = 4 * 2**20
_HEALTHY_ROWS = 100_000


def is_worth_a_look(inputs: Sequence[DataFile]) -> bool:
    """Say whether pages may be of a healthy size: one has no more than its fragment."""
    if any(file.rows is None for file in inputs):
        return True
    rows = sum(file.rows or 0 for file in inputs)
    return _is_enough(rows, sum(file.bytes for file in inputs), len(inputs))


def may_copy(store: Store, dataset: Any, fragments: Sequence[Any]) -> bool:
    """Say whether the pages of `fragments` mean the same in one file, and are of a healthy size.

    Lance has crossed columns whose files had them in another order, and invented ones that files
    lacked. So files must have exactly the columns of the table in its order, whatever Lance asks
    for; and that rows are the same is proved afterwards in any case.
    """
    known = [described(fragment) for fragment in fragments]
    if not known or not all(map(_is_plain, known)):
        return False
    layouts = {_layout(fragment) for fragment in known}
    fields = tuple(field_numbers(dataset.lance_schema.fields()))
    columns = tuple(range(len(fields)))
    version = tuple(map(int, dataset.data_storage_version.split(".")))
    return layouts == {(fields, columns, version)} and _is_healthy(store, known)


def _is_plain(fragment: Mapping[str, Any]) -> bool:
    """Say whether nothing but one file in the table's root tells the rows of a fragment."""
    files = fragment["files"]
    is_changed = fragment.get("deletion_file") or fragment.get("overlays")
    return len(files) == 1 and not is_changed and files[0].get("base_id") is None


def _layout(fragment: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return which column of the file is which of the table, and the version that it is of."""
    (file,) = fragment["files"]
    version = file["file_major_version"], file["file_minor_version"]
    return tuple(file["fields"]), tuple(file["column_indices"]), version


def _is_healthy(store: Store, fragments: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the pages of every column are of a healthy size as a rule."""
    load_lance()
    from lance.file import LanceFileReader

    options = store.connection_options() or None
    pages: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for fragment in fragments:
        path = f"{address(store)}/{DATA_DIRECTORY}/{fragment['files'][0]['path']}"
        metadata = LanceFileReader(path, storage_options=options).metadata()
        for number, column in enumerate(metadata.columns):
            buffers = [buffer for page in column.pages for buffer in page.buffers]
            pages[number] = pages.get(number, 0) + len(column.pages)
            sizes[number] = sizes.get(number, 0) + sum(buffer.size for buffer in buffers)
    rows = sum(fragment["physical_rows"] or 0 for fragment in fragments)
    return all(_is_enough(rows, sizes[number], count) for number, count in pages.items())


def _is_enough(rows: int, size: int, pages: int) -> bool:
    return rows >= _HEALTHY_ROWS * pages or size >= _HEALTHY_BYTES * pages


#: A fragment ends by its bytes. Lance counts rows of a fragment with 32 bits.
_ANY_ROWS = 2**31
_REWRITE = "rewrite"
_REPLACED = "original_fragments"
#: Lance's name for copying pages. Where Lance finds that unsafe, it encodes them again.
COPYING = "TryBinaryCopy"


def run_task(dataset: Any, fragments: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Write the rows of `fragments` into new ones; return Lance's own account of it."""
    metadata = [described(fragment) for fragment in fragments]
    asked = {**options, "data_storage_version": dataset.data_storage_version}
    task = load_lance().optimize.CompactionTask.from_json(
        json.dumps(
            {
                "task": {"fragments": metadata},
                "read_version": dataset.version,
                "options": {**_all_options(), **asked},
            }
        )
    )
    account: str = task.execute(dataset).json()
    return account


@cache
def _all_options() -> dict[str, Any]:
    """Return every option of the installed library: a task must name them all.

    They are read off a plan for two fragments that exist for this purpose only.
    """
    lance = load_lance()
    rows = pa.table({"a": [1, 2]})
    dataset = lance.write_dataset(rows, "memory://lakehand-options", max_rows_per_file=1)
    plan = lance.optimize.Compaction.plan(dataset, {"target_rows_per_fragment": _ANY_ROWS})
    options: dict[str, Any] = json.loads(plan.tasks[0].json())["options"]
    return options


def with_sizes(store: Store, account: str) -> str:
    """Return an account that tells the sizes of all new files: of moved pages Lance does not."""
    told = json.loads(account)
    for file in (file for fragment in told["new_fragments"] for file in fragment["files"]):
        if not file["file_size_bytes"]:
            file["file_size_bytes"] = store.head(f"{DATA_DIRECTORY}/{file['path']}").bytes
    return json.dumps(told)


def staged_files(account: str) -> tuple[StagedFile, ...]:
    """Return the files of an account; the first one carries it along."""
    fragments = json.loads(account)["new_fragments"]
    return tuple(
        StagedFile(
            path=_key(fragment),
            bytes=sum(file["file_size_bytes"] for file in fragment["files"]),
            rows=fragment["physical_rows"],
            native={_REWRITE: account} if number == 0 else {},
        )
        for number, fragment in enumerate(fragments)
    )


def _key(fragment: Mapping[str, Any]) -> str:
    return f"{DATA_DIRECTORY}/{fragment['files'][0]['path']}"


def account_of(
    files: Sequence[StagedFile], *, version: int, replaced: Callable[[], Sequence[Any]]
) -> str:
    """Return the account of `files`, which are all of one group; of several writings the sum.

    `version` is the one that it is committed from, which has the fragments that are replaced as
    they were read; `replaced` finds them there, for accounts of which Lance has not told them.
    CorruptFileError if the account does not name exactly these files.
    """
    accounts = [json.loads(file.native[_REWRITE]) for file in files if _REWRITE in file.native]
    new = [fragment for account in accounts for fragment in account["new_fragments"]]
    named = sorted(_key(fragment) for fragment in new)
    if named != sorted(file.path for file in files):
        message = f"{len(files)} files were written, and {len(named)} are told of"
        raise CorruptFileError(message, hint="nothing was changed; please report this")
    account = {**accounts[0], "read_version": version}
    if _REPLACED not in account:
        account[_REPLACED] = [described(fragment) for fragment in replaced()]
    if len(accounts) == 1:
        return json.dumps(account)
    metrics = {**account["metrics"], "fragments_added": len(new), "files_added": len(new)}
    # Which row went where is known of single writings only, and only where Lance wrote.
    return json.dumps({**account, "new_fragments": new, "metrics": metrics, "row_addrs": None})


def tells_places(files: Sequence[StagedFile]) -> bool:
    """Say whether the account of `files` tells where rows went, as indices must know."""
    accounts = [file.native[_REWRITE] for file in files if _REWRITE in file.native]
    return len(accounts) == 1 and json.loads(accounts[0]).get("row_addrs") is not None


def new_fragments(files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    """Return the fragments of staged files as Lance describes them."""
    found: list[dict[str, Any]] = []
    for file in files:
        if _REWRITE in file.native:
            found += json.loads(file.native[_REWRITE])["new_fragments"]
        elif FRAGMENT in file.native:
            found.append(json.loads(file.native[FRAGMENT]))
    return found
