"""Repairs of files: which finding each one answers, which consent it needs, and what it loses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: Options by which a caller accepts the consequences of a repair.
ConsentName = Literal["accept_data_loss", "accept_changed_files", "restore_deleted_rows"]
#: Possible repairs of a file's entry.
FileRepair = Literal[
    "drop_files",
    "restore_deleted_rows",
    "accept_changed_files",
    "correct_deletion_count",
    "recompute_statistics",
    "remove_duplicate_entries",
]
#: The finding of a pin whose version is gone.
LOST_PIN = "lost_pin"


def option_of(consent: ConsentName) -> str:
    """Return the command's option for a consent.

    >>> option_of("accept_data_loss")
    '--accept-data-loss'
    """
    return "--" + consent.replace("_", "-")


@dataclass(frozen=True, kw_only=True, slots=True)
class Consent:
    """What the caller accepts. Without it no data is lost, and no evidence of a loss hidden."""

    #: Unreadable or missing data may be dropped.
    accept_data_loss: bool = False
    #: Files that do not match their size, statistics or checksum may be accepted.
    accept_changed_files: bool = False
    #: Rows whose deletion vector is lost may become visible again.
    restore_deleted_rows: bool = False

    def allows(self, name: ConsentName | None) -> bool:
        """Return whether a repair that needs this consent is allowed; None: it needs none."""
        return name is None or bool(getattr(self, name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One way to repair files."""

    repair: FileRepair
    #: The consent it needs; None: nothing is lost.
    consent: ConsentName | None = None
    #: The consequence of the consent, for a person who has to decide.
    effect: str = ""


_DROP = Remedy(
    repair="drop_files",
    consent="accept_data_loss",
    effect="removes the file from the table, with the loss of its rows",
)
_RESTORE = Remedy(
    repair="restore_deleted_rows",
    consent="restore_deleted_rows",
    effect="keeps the file and removes its deletion vector: deleted rows become visible again",
)
_ACCEPT = Remedy(
    repair="accept_changed_files",
    consent="accept_changed_files",
    effect="accepts the current file and recomputes its statistics: if it was replaced, the rows of"
    " the original are lost",
)
_COUNT = Remedy(repair="correct_deletion_count")
_RECOMPUTE = Remedy(repair="recompute_statistics")
_UNLIST = Remedy(repair="remove_duplicate_entries")

#: By the name of a finding; the first one with consent is used.
REMEDIES: Mapping[str, tuple[Remedy, ...]] = {
    "missing_file": (_DROP,),
    "unreadable_footer": (_DROP,),
    "unreadable_rows": (_DROP,),
    "missing_deletion_vector": (_RESTORE, _DROP),
    "bad_deletion_vector": (_RESTORE, _DROP),
    "wrong_deletion_count": (_COUNT,),
    "wrong_size": (_ACCEPT,),
    "wrong_row_count": (_ACCEPT,),
    "wrong_statistics": (_ACCEPT,),
    "unreadable_statistics": (_RECOMPUTE,),
    "duplicate_entry": (_UNLIST,),
}
_ONLY_A_BACKUP = "the file is not the committed one; restore that from a backup"
#: Findings that cannot be repaired with the data of the table.
UNREPAIRABLE: Mapping[str, str] = {
    "unreachable_file": "storage did not answer whether the file exists",
    "duplicate_file": "it is unknown which of the entries is correct; restore an earlier version",
    "wrong_file_checksum": "restore the file from a backup; if the file is correct and its checksum"
    " is not, delete the checksum file",
    LOST_PIN: "the owner of the pin must decide what to keep instead",
}


def chosen_remedy(name: str, consent: Consent, offered: Collection[FileRepair]) -> Remedy | None:
    """Return the repair of a finding; None: it needs another consent.

    `offered` are the repairs that the format of the table supports.
    """
    allowed = (remedy for remedy in _offered(name, offered) if consent.allows(remedy.consent))
    return next(allowed, None)


def why_refused(name: str, offered: Collection[FileRepair]) -> tuple[str, tuple[ConsentName, ...]]:
    """Return why a finding is not repaired, and which consents would change that."""
    remedies = _offered(name, offered)
    ways = {r.consent: f"{option_of(r.consent)} {r.effect}" for r in remedies if r.consent}
    if not ways:
        return UNREPAIRABLE.get(name, _ONLY_A_BACKUP), ()
    return "restore it from a backup; else " + "; or ".join(ways.values()), tuple(ways)


def _offered(name: str, offered: Collection[FileRepair]) -> list[Remedy]:
    return [remedy for remedy in REMEDIES.get(name, ()) if remedy.repair in offered]


#: Description of each repair, with the number of files, and what is lost.
REPAIR_DESCRIPTIONS: Mapping[FileRepair, tuple[str, str | None]] = {
    "drop_files": ("remove {} from the table", "{rows:,} rows, as far as recorded"),
    "restore_deleted_rows": (
        "remove the deletion vectors of {}",
        "the deletion of rows: {deleted:,}, as far as recorded, become visible again",
    ),
    "accept_changed_files": (
        "accept the current {}: size and statistics are recomputed",
        "rows of the committed files, if they were replaced since",
    ),
    "correct_deletion_count": (
        "correct the number of deleted rows of {} to that of their deletion vectors",
        None,
    ),
    "recompute_statistics": ("recompute the statistics of {}", None),
    "remove_duplicate_entries": ("remove the entries of {} with other paths", None),
}
