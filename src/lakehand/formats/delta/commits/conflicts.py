"""What a commit that came first leaves of a change: pure rules, one a function.

A change is judged against every version that landed since its snapshot, one by one. Each rule hands
the change on, hands on what is left of it, or raises.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitConflictError, CommitUnknownError, ReplanError
from lakehand.formats.delta.protocol.clustering import CLUSTERING_DOMAIN
from lakehand.formats.delta.protocol.names import decode_path, path_in_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakehand.formats.delta.commits.head import Head
    from lakehand.formats.delta.protocol.actions import Commit, Metadata
    from lakehand.model.work import Change, Replacement


_TRACKING = "rowTracking"


def rebase(change: Change, head: Head, winner: Commit) -> Change:
    """Return what is left of `change` once `winner`, the version after `head`, is in the log.

    Raises ReplanError or CommitConflictError if nothing is left or the rest makes no sense.
    """
    for rule in _RULES:
        change = rule(change, head, winner)
    return change


def holds_transaction(change: Change, winner: Commit, head: Head) -> bool:
    """Say whether `winner` already holds what `change` is to write exactly once.

    An older transaction of the same application means that two writers share its name.
    """
    ours = change.transaction
    if ours is None:
        return False
    theirs = [txn for txn in winner.transactions if txn["appId"] == ours.application]
    if not theirs:
        return False
    newest = max(int(txn["version"]) for txn in theirs)
    if newest >= ours.version:
        return True
    raise CommitConflictError(
        f"application {ours.application!r} wrote transaction {newest} into {head.table} while its"
        f" transaction {ours.version} was under way",
        **_versions(change, head, winner),
        hint="two writers use one application name; give each its own",
        retryable=False,
    )


def _stop_restoring(change: Change, head: Head, winner: Commit) -> Change:
    """Give way to anybody: what a restore takes away was chosen before this version was there."""
    if change.kind != "restore":
        return change
    raise CommitConflictError(
        f"version {winner.version} was committed to {head.table} while it was being restored",
        **_versions(change, head, winner),
        hint="nothing was written; check that version, then restore again",
    )


def _stop_if_protocol_changed(change: Change, head: Head, winner: Commit) -> Change:
    if winner.protocol is None or winner.protocol == head.protocol:
        return change
    raise _replan(change, head, winner, "changed the table's protocol")


def _stop_if_metadata_changed(change: Change, head: Head, winner: Commit) -> Change:
    if winner.metadata is None:
        return change
    # A change that says itself what the table is like would take the winner's word back.
    says_so_too = any("metaData" in said for said in change.native)
    if not says_so_too and _same_but_identity(head.metadata, winner.metadata):
        return change
    raise _replan(change, head, winner, "changed the table's schema or properties")


def _same_but_identity(before: Metadata, after: Metadata) -> bool:
    """Say whether two metadata differ at most in how far identity columns have counted."""
    if replace(before, schema_string=None) != replace(after, schema_string=None):
        return False
    return bool(before.lasting_schema() == after.lasting_schema())


def _stop_clustering_if_columns_changed(change: Change, head: Head, winner: Commit) -> Change:
    changed = any(domain["domain"] == CLUSTERING_DOMAIN for domain in winner.domains)
    if changed and change.parameters.get("clusterBy"):
        raise _replan(change, head, winner, "changed the columns that the table is clustered by")
    return change


def _stop_if_domain_changed(change: Change, head: Head, winner: Commit) -> Change:
    """Give way to a writer that set the same domain: this change would undo it unseen."""
    said = {item["domainMetadata"]["domain"] for item in change.native if "domainMetadata" in item}
    if said.isdisjoint(domain["domain"] for domain in winner.domains):
        return change
    raise _replan(change, head, winner, "changed the columns that the table is clustered by")


def _stop_if_files_lack_row_ids(change: Change, head: Head, winner: Commit) -> Change:
    """Refuse to start row tracking over files that were added without row ids."""
    said = [item["protocol"] for item in change.native if "protocol" in item]
    starts = any(_TRACKING in (protocol.get("writerFeatures") or ()) for protocol in said)
    if not starts or _TRACKING in (head.protocol.writer_features or ()) or not winner.adds:
        return change
    raise _replan(change, head, winner, "added files without row ids")


def _stop_if_files_are_there(change: Change, head: Head, winner: Commit) -> Change:
    """Refuse to add a file twice: the winner may be this very change under another token."""
    known = _paths(winner.adds, head)
    replaced = {file.path for file in change.all_removes}
    for path in {file.path for file in change.all_adds} - replaced:
        if path in known:
            raise CommitUnknownError(
                f"version {winner.version} of {head.table} already has the file {path!r} that this"
                " commit was to add",
                **_versions(change, head, winner),
                hint="the same change was probably committed before; keep its files and check"
                f" version {winner.version}",
            )
    return change


def _drop_touched_groups(change: Change, head: Head, winner: Commit) -> Change:
    if not change.replacements:
        return change
    touched = _touched_paths(winner, head)
    left = tuple(
        replacement
        for replacement in change.replacements
        if touched.isdisjoint(path_in_table(f.path, head.table) for f in replacement.removes)
    )
    if left:
        return replace(change, replacements=left, proof=_proof_of(change, left))
    raise CommitConflictError(
        f"version {winner.version} of {head.table} changed files of every group that was left to"
        " commit",
        **_versions(change, head, winner),
        hint="nothing was written; plan again",
    )


def _drop_touched_statistics(change: Change, head: Head, winner: Commit) -> Change:
    """Leave out files that the winner names: an add without a remove would bring them back."""
    if not change.refreshed:
        return change
    touched = _touched_paths(winner, head)
    left = tuple(
        item
        for item in change.refreshed
        if path_in_table(item.file.path, head.table) not in touched
    )
    if left:
        return replace(change, refreshed=left)
    raise CommitConflictError(
        f"version {winner.version} of {head.table} changed every file whose statistics were left to"
        " commit",
        **_versions(change, head, winner),
        hint="nothing was written; run the operation again",
    )


def _proof_of(change: Change, left: tuple[Replacement, ...]) -> Mapping[str, Any] | None:
    if change.proof is None:
        return None
    kept = {str(replacement.group) for replacement in left}
    return {group: evidence for group, evidence in change.proof.items() if group in kept}


def _stop_if_removed_files_were_touched(change: Change, head: Head, winner: Commit) -> Change:
    removed = {path_in_table(file.path, head.table) for file in change.removes}
    touched = _touched_paths(winner, head) & removed
    if not touched:
        return change
    raise CommitConflictError(
        f"version {winner.version} of {head.table} changed {len(touched)} of the files that this"
        f" commit was to replace, among them {min(touched)!r}",
        **_versions(change, head, winner),
        hint="nothing was written; run the operation again",
    )


def _stop_if_rows_read_may_have_changed(change: Change, head: Head, winner: Commit) -> Change:
    if not change.reads_rows:
        return change
    # An action without the flag changes data: that is the reading that loses nothing.
    changes = [action for action in _file_actions(winner) if action.get("dataChange", True)]
    if not changes:
        return change
    raise CommitConflictError(
        f"version {winner.version} of {head.table} added or removed rows that this commit would"
        " have had to read",
        **_versions(change, head, winner),
        hint="nothing was written; run the operation again",
    )


_RULES: tuple[Callable[[Change, Head, Commit], Change], ...] = (
    _stop_restoring,
    _stop_if_protocol_changed,
    _stop_if_metadata_changed,
    _stop_clustering_if_columns_changed,
    _stop_if_domain_changed,
    _stop_if_files_lack_row_ids,
    _stop_if_files_are_there,
    _drop_touched_groups,
    _drop_touched_statistics,
    _stop_if_removed_files_were_touched,
    _stop_if_rows_read_may_have_changed,
)


def _file_actions(commit: Commit) -> tuple[Mapping[str, Any], ...]:
    return (*commit.adds, *commit.removes)


def _touched_paths(commit: Commit, head: Head) -> set[str]:
    """Return the files that a commit names, whatever their deletion vectors."""
    return _paths(_file_actions(commit), head)


def _paths(actions: Iterable[Mapping[str, Any]], head: Head) -> set[str]:
    """Return files by their names in the table, however the commit spells them."""
    return {path_in_table(decode_path(action["path"]), head.table) for action in actions}


def _replan(change: Change, head: Head, winner: Commit, what: str) -> ReplanError:
    return ReplanError(
        f"version {winner.version} of {head.table} {what}",
        **_versions(change, head, winner),
        hint="nothing was written; plan again on the newest version",
    )


def _versions(change: Change, head: Head, winner: Commit) -> dict[str, Any]:
    return {
        "table": head.table,
        "expected_version": change.base_version,
        "actual_version": winner.version,
    }
