"""The hidden checksum files that Hadoop keeps beside its files on local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["delete_hadoop_sum"]


def delete_hadoop_sum(store: Store, key: str) -> None:
    """Forget Hadoop's checksum of `key`; call this before overwriting `key`.

    Every Hadoop reader checks a file against `.<name>.crc` beside it, so a sum that outlives the
    bytes it was made from makes the file unreadable for delta-spark.
    """
    if store.local_path(key) is None:
        return
    folder, _, name = key.rpartition("/")
    sum_name = f".{name}.crc"
    store.delete([f"{folder}/{sum_name}" if folder else sum_name])
