"""What can be done about a file that something is wrong with, and who must agree to it.

A repair is free where nothing can be lost by it and no evidence of a loss goes. Everything else
asks for a consent of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehand.assess.lost_pins import LOST_PIN
from lakehand.model.repair import option_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakehand.model.repair import Consent, ConsentName, FileRepair

__all__ = ["REMEDIES", "UNREPAIRABLE", "Remedy", "chosen_remedy", "why_refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One way to repair files."""

    repair: FileRepair
    #: What the caller must agree to; None: nothing is lost by it.
    consent: ConsentName | None = None
    #: What a consent means, for a person who has to decide.
    effect: str = ""


_DROP = Remedy(
    repair="drop_files",
    consent="accept_data_loss",
    effect="takes the file out of the table, and gives its rows up",
)
_RESTORE = Remedy(
    repair="restore_deleted_rows",
    consent="restore_deleted_rows",
    effect="keeps the file and drops its deletion vector: deleted rows are visible again",
)
_ACCEPT = Remedy(
    repair="accept_changed_files",
    consent="accept_changed_files",
    effect="takes the file as it is now and computes its statistics again: if it was replaced, the"
    " rows that it held before are lost",
)
_COUNT = Remedy(repair="correct_deletion_count")
_RECOMPUTE = Remedy(repair="recompute_statistics")
_UNLIST = Remedy(repair="remove_duplicate_entries")

#: By the name of a finding; the first one that the caller agrees to is taken.
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
_ONLY_A_BACKUP = "the file is not the one that was committed; only a backup has that one"
#: Findings that nobody can repair from what the table has.
UNREPAIRABLE: Mapping[str, str] = {
    "unreachable_file": "storage does not say whether the file exists",
    "duplicate_file": "nothing says which of the entries is right; restore a version from before",
    "wrong_file_checksum": "restore the file from a backup; if the file is right and its checksum"
    " is not, delete the checksum file",
    LOST_PIN: "who made the pin must say what to keep instead",
}


def chosen_remedy(name: str, consent: Consent, offered: Collection[FileRepair]) -> Remedy | None:
    """Return what is done about a finding; None: nothing without another consent.

    `offered` are the repairs that the format of the table knows.
    """
    allowed = (remedy for remedy in _offered(name, offered) if consent.allows(remedy.consent))
    return next(allowed, None)


def why_refused(name: str, offered: Collection[FileRepair]) -> tuple[str, tuple[ConsentName, ...]]:
    """Return why nothing is done about a finding, and which consents would change that."""
    remedies = _offered(name, offered)
    ways = {r.consent: f"{option_of(r.consent)} {r.effect}" for r in remedies if r.consent}
    if not ways:
        return UNREPAIRABLE.get(name, _ONLY_A_BACKUP), ()
    return "restore it from a backup; else " + "; or ".join(ways.values()), tuple(ways)


def _offered(name: str, offered: Collection[FileRepair]) -> list[Remedy]:
    return [remedy for remedy in REMEDIES.get(name, ()) if remedy.repair in offered]
