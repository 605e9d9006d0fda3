"""Descriptors: files that a writer has written and another process is to commit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import ReplanError, ValidationError
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.work import MAX_EPOCH, StagedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.table_head import TableHead
    from lakehand.sink.target import Target

#: The only version of the format so far.
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """Staged files of one epoch of one writer, which no version refers to yet."""

    writer: str
    epoch: int
    #: Of the table that the files were written for.
    table_id: str | None
    #: Fingerprint of what the table asks of files.
    rules: str
    #: Version that the writer knew.
    base_version: int
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> str:
        """Return the descriptor as a JSON string, to send to the committer."""
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what a writer sent; ValidationError if its version is unknown."""
        value = _parse(text)
        version = value.get("version")
        if version != _VERSION:
            raise ValidationError(
                f"a descriptor of version {version!r} cannot be read: only {_VERSION} is known",
                field="version",
                value=version,
                hint="nothing was committed; use the same lakehand for writers and committer",
            )
        try:
            found = read_value(cls, value)
        except DocumentError as error:
            raise _unreadable(str(error)) from error
        if not 0 <= found.epoch <= MAX_EPOCH:
            raise _unreadable(f"{found.epoch} is no epoch")
        return found


def rules_of(head: TableHead) -> str:
    """Return a fingerprint of what a table asks of files."""
    return hashlib.sha256(head.rules.encode()).hexdigest()


def require_fit(target: Target, descriptor: Descriptor) -> None:
    """Raise ReplanError if the files were written for another table than `target` is now."""
    for _ in range(2):
        head = target.head
        if (descriptor.table_id, descriptor.rules) == (head.table_id, rules_of(head)):
            return
        target.refresh()
    raise ReplanError(
        f"the files of writer {descriptor.writer!r} were written for another table than"
        f" {head.table} is now: its columns or its protocol have changed",
        table=head.table,
        expected_version=descriptor.base_version,
        actual_version=head.version,
        hint="nothing was committed; write the epoch again",
        retryable=False,
    )


def require_files(target: Target, files: Sequence[StagedFile]) -> None:
    """Refuse files that are missing or changed: a version must never refer to one."""
    found = {info.key: info.bytes for info in target.store.head_all(f.path for f in files)}
    missing = next((file for file in files if found.get(file.path) != file.bytes), None)
    if missing is not None:
        raise ValidationError(
            f"file {missing.path!r} of a descriptor is not in {target.store.url}, or is another"
            " one there",
            field="descriptors",
            value=missing.path,
            hint="nothing was committed; its writer has given the epoch up: write it again",
        )


def _parse(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except (DocumentError, TypeError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(reason: str) -> ValidationError:
    message = f"a descriptor cannot be read: {reason}"
    return ValidationError(message, field="descriptor", hint="nothing was committed")
