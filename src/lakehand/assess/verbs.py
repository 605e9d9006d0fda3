"""The verbs of a table that say whether it is whole, and make it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.repair import RepairReport
    from lakehand.model.verification import Verification
    from lakehand.observe import OnProgress
    from lakehand.settings import Settings

__all__ = ["SoundnessVerbs"]


class SoundnessVerbs:
    """What a table can do about damage. It need not open for that: its history may be broken."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def verify(
        self,
        *,
        version: int | None = None,
        every: bool = False,
        proofs: bool = True,
        deep: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> Verification:
        """Check that the table is whole, and again that a rewrite kept every row. Writes nothing.

        Looked at are all commits and checkpoints, and every file: whether it is there, its size,
        its footer, its number of rows and its deleted rows; with `deep` also its rows, against its
        statistics. A table that cannot be opened by its history is diagnosed, too. Then the files
        of the newest commit that carries a proof are compared with those that they replaced;
        `version` names another commit, `every` takes all, `proofs=False` none. Further keywords
        are settings, for this call only.
        """
        from lakehand.assess.verify import VerifyRequest, verify

        handle, chosen = for_call(self._handle, self._settings, settings)
        return verify(
            handle,
            settings=chosen,
            request=VerifyRequest(version=version, every=every, proofs=proofs, deep=deep),
            spark=self._spark,
            on_progress=on_progress,
        )

    def repair(
        self,
        *,
        accept_data_loss: bool = False,
        accept_changed_files: bool = False,
        restore_deleted_rows: bool = False,
        deep: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> RepairReport:
        """Repair what `verify` finds wrong, as far as nothing is lost by it, and look again.

        Checkpoints are written again, and the pointer to the newest; what misleads readers is
        moved out of the log, never deleted. The rest asks for a consent: `accept_data_loss` drops
        files that are lost, and goes back to the newest version that can be read;
        `accept_changed_files` takes files, and the log, as they are although they contradict their
        size, statistics or checksum; `restore_deleted_rows` drops deletion vectors that cannot be
        read, so that deleted rows are visible again. What is not repaired is in the report with
        its reason and the consent that it asks for. `deep` decodes the rows of every file, as in
        `verify`. Stop other writers first. Further keywords are settings, for this call only.
        """
        from lakehand.assess.repair import RepairRequest, repair
        from lakehand.model.repair import Consent

        consent = Consent(
            accept_data_loss=accept_data_loss,
            accept_changed_files=accept_changed_files,
            restore_deleted_rows=restore_deleted_rows,
        )
        handle, chosen = for_call(self._handle, self._settings, settings)
        return repair(
            handle,
            settings=chosen,
            request=RepairRequest(consent=consent, deep=deep),
            spark=self._spark,
            dry_run=dry_run,
            on_progress=on_progress,
        )
