"""Rows that are new to a table as a task sees them: counted in the types that are hashed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.formats.lance.connect import translated
from lakehand.formats.lance.files.plain import plain_batch, plain_schema
from lakehand.formats.worker import NotDecodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.formats.worker import Decoder, TaskLimits
    from lakehand.model.work import StagedFile
    from lakehand.prove.digest import Digester
    from lakehand.storage import Store

__all__ = ["NewRows", "require_any"]


class NewRows:
    """The part of a worker that counts rows which are new to the table."""

    __slots__ = ()

    store: Store

    if TYPE_CHECKING:

        @property
        def schema(self) -> pa.Schema: ...

        def read_staged(self, files: Sequence[StagedFile]) -> pa.RecordBatchReader: ...

    @property
    def keeps_emptied_files(self) -> bool:
        """Lance replaces rows in one commit only if all fragments stay; compaction drops them."""
        return True

    @property
    def hands_on_row_ids(self) -> bool:
        """Lance gives new ids to rows that replace others."""
        return False

    @property
    def new_rows(self) -> pa.Schema:
        """Columns of rows that are new: without ids, which they get with the commit."""
        return plain_schema(self.schema)

    def counted_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return new rows in the types that are hashed."""
        return plain_batch(rows)

    def digest_new(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,  # noqa: ARG002
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count rows that are new in `digester`, as storage gives them back."""
        require_any(decoder)
        with translated(self.store, "to read new fragments"):
            digester.add_all(map(plain_batch, self.read_staged(files)))


def require_any(decoder: Decoder) -> None:
    """There is one decoder of Lance files, so nothing can be read by another one."""
    if decoder == "only-duckdb":
        raise NotDecodable("Lance files are read by Lance alone")
