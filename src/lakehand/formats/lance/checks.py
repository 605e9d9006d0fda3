"""Manifests and fragments checked against what their table says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import CorruptLogError, LakehandError, VersionNotFoundError
from lakehand.formats.lance.connect import is_lance_failure, load_lance, manifest_keys, said
from lakehand.formats.lance.fragments import find_fragments, fragments_by_number
from lakehand.formats.lance.reading import scanned
from lakehand.formats.lance.snapshot import load_snapshot, table_head
from lakehand.model.verification import Finding, LogCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakehand.model.work import DataFile
    from lakehand.storage import Store


def check_log(store: Store) -> LogCheck:
    """Read every existing version, the newest first.

    Of the newest one that can be read, its fragments are read too; of older ones all but these.
    """
    load_lance()
    keys = manifest_keys(store)
    versions = sorted(keys, reverse=True)
    readable: int | None = None
    findings = []
    for version in versions:
        try:
            if readable is None:
                load_snapshot(store, version=version)
                readable = version
            else:
                table_head(store, version=version)
        except VersionNotFoundError:
            # Vacuum has deleted it since the versions were listed.
            continue
        except LakehandError as error:
            findings.append(_finding(version, keys[version], error))
    return LogCheck(
        version=versions[0] if versions else None,
        readable_version=readable,
        commits=len(versions),
        checkpoints=0,
        findings=tuple(findings),
    )


def _finding(version: int, key: str, error: LakehandError) -> Finding:
    return Finding(
        name="corrupt_commit",
        version=version,
        path=key,
        message=error.message,
        hint="bring its manifest back from a backup, or restore an earlier version",
    )


#: Without them the separate files of long values would not be checked.
_WITH_PAYLOADS = "all_binary"
_BACKUP = "bring the object back from a backup, or restore an earlier version"


def check_files(store: Store, files: pa.Table) -> list[Finding]:
    """Return files of fragments that are missing, or of another size than the table says."""
    fragments = files.select(["path", "bytes", "rows", "deleted_rows", "native"]).to_pylist()
    wanted = [key for fragment in fragments for key in _keys(fragment["native"])]
    sizes = {info.key: info.bytes for info in store.head_all(dict.fromkeys(wanted))}
    return [finding for fragment in fragments for finding in _findings_of_files(fragment, sizes)]


def _keys(native: dict[str, Any]) -> list[str]:
    deletions = native["deletions"]
    return [*native["files"], *([deletions] if deletions else [])]


def _findings_of_files(fragment: dict[str, Any], sizes: dict[str, int]) -> Iterator[Finding]:
    rows = None if fragment["rows"] is None else fragment["rows"] - fragment["deleted_rows"]
    missing = [key for key in _keys(fragment["native"]) if key not in sizes]
    for key in missing:
        yield Finding(
            name="missing_file",
            path=key,
            message=f"{key} is gone: fragment {fragment['native']['id']} cannot be read",
            hint=_BACKUP,
            rows=rows,
        )
    found = sum(sizes.get(key, 0) for key in fragment["native"]["files"])
    if not missing and found != fragment["bytes"]:
        yield Finding(
            name="wrong_size",
            path=fragment["path"],
            expected=str(fragment["bytes"]),
            found=str(found),
            message=f"{fragment['path']} has {found} bytes, and the table says {fragment['bytes']}",
            hint=_BACKUP,
            rows=rows,
        )


def check_rows(store: Store, dataset: Any, files: Sequence[DataFile]) -> Iterator[Finding]:
    """Decode the rows of fragments one after the other, and count them."""
    known = fragments_by_number(dataset)
    for file in files:
        finding = _decode(store, dataset, file, known)
        if finding is not None:
            yield finding


def _decode(store: Store, dataset: Any, file: DataFile, known: Mapping[int, Any]) -> Finding | None:
    expected = None if file.rows is None else file.rows - file.deleted_rows
    try:
        (fragment,) = find_fragments(dataset, [file], table=store.url, known=known)
        scanner = dataset.scanner(fragments=[fragment], blob_handling=_WITH_PAYLOADS)
        found = sum(batch.num_rows for batch in scanned(dataset, [fragment], scanner))
    except BaseException as error:
        if not (isinstance(error, CorruptLogError) or is_lance_failure(error)):
            raise
        return Finding(
            name="unreadable_rows",
            path=file.path,
            message=f"{file.path} cannot be read: {said(error, store)}",
            hint=_BACKUP,
            rows=expected,
        )
    if expected is None or found == expected:
        return None
    return Finding(
        name="wrong_row_count",
        path=file.path,
        expected=str(expected),
        found=str(found),
        message=f"{file.path} has {found} visible rows, and the table says {expected}",
        hint=_BACKUP,
        rows=expected,
    )
