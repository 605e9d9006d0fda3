"""Datasets that come into being."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakehand.errors import RefusedError, StorageError, TableExistsError, ValidationError
from lakehand.formats.lance.connect import address, load_lance, said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakehand.storage import Store

__all__ = ["create_dataset"]

_EXISTS = re.compile(r"already exists", re.IGNORECASE)
#: Decided once for all time, when a dataset is created.
_STABLE_ROW_IDS = "enable_stable_row_ids"


def create_dataset(
    store: Store, schema: pa.Schema, *, partition_by: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Create an empty dataset; TableExistsError if there is one."""
    if partition_by:
        raise RefusedError(
            f"{store.url} is not created: Lance has no partitions",
            table=store.url,
            operation="create",
            feature="partitions",
            hint="leave partition_by out, and cluster the table",
        )
    if not schema.names:
        raise ValidationError("a table has at least one column", field="schema")
    try:
        dataset = load_lance().write_dataset(
            schema.empty_table(),
            address(store),
            mode="create",
            storage_options=store.connection_options() or None,
            enable_stable_row_ids=properties.get(_STABLE_ROW_IDS, "false").lower() == "true",
        )
    except (OSError, ValueError) as error:
        raise _not_created(store, error) from error
    config = {key: value for key, value in properties.items() if key != _STABLE_ROW_IDS}
    if config:
        dataset.update_config(config)


def _not_created(store: Store, error: Exception) -> TableExistsError | StorageError:
    if _EXISTS.search(str(error)):
        return TableExistsError(f"there is a Lance table at {store.url}", table=store.url)
    return StorageError(f"{store.url} cannot be created: {said(error, store)}", path=store.url)
