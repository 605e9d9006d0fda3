"""New data files made durable on local disk, which Lance leaves to the operating system."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakehand.storage.local_files import sync_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.model.work import StagedFile
    from lakehand.storage import Store

__all__ = ["made_durable"]


def made_durable(store: Store, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    """Return `files` once they would survive a power cut, as objects in a store always do."""
    named = [path for file in files if (path := store.local_path(file.path)) is not None]
    # Long payloads of blobs lie in a directory beside their file, and no manifest names them.
    paths = [*named, *(path for file in named for path in file.with_suffix("").glob("*"))]
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for directory in {str(path.parent) for path in paths}:
        sync_directory(directory)
    return tuple(files)
