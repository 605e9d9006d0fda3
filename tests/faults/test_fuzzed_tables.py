"""Tables with damaged files: no verb fails untyped, hangs or dies, and no row changes unnoticed.

What must hold of every damage is said by `support.fuzz_runs.check_case`.
"""

from __future__ import annotations

import pytest

from support.fuzz_bases import BASES, make_base
from support.fuzz_runs import Batch, run, target_files

#: How many of 10,000 random damages each of these gets in the long version.
SHARES = {
    ("everything", "commits"): 2_000,
    ("plain", "commits"): 1_000,
    ("partitioned", "commits"): 1_000,
    ("everything-twice", "commits"): 500,
    ("everything-twice", "checkpoints"): 1_000,
    ("multipart", "checkpoints"): 500,
    ("v2", "checkpoints"): 500,
    ("v2-json", "checkpoints"): 500,
    ("v2-parquet", "checkpoints"): 300,
    ("v2", "sidecars"): 500,
    ("v2-parquet", "sidecars"): 300,
    ("partitioned", "last_checkpoint"): 200,
    ("partitioned", "checksums"): 200,
    ("everything", "deletion_vectors"): 500,
    ("partitioned", "data"): 500,
    ("worked-on", "ledgers"): 200,
    ("worked-on", "pins"): 50,
    ("worked-on", "quarantines"): 50,
    ("worked-on", "plans"): 100,
    ("lance", "lance_manifests"): 500,
    ("lance", "lance_data"): 50,
}
SHORT = {
    ("everything", "commits"): 48,
    ("v2-json", "checkpoints"): 16,
    ("everything-twice", "checkpoints"): 16,
    ("v2", "sidecars"): 12,
    ("partitioned", "last_checkpoint"): 10,
    ("partitioned", "checksums"): 6,
    ("everything", "deletion_vectors"): 16,
    ("lance", "lance_manifests"): 24,
}
SYSTEMATIC = [
    ("everything", "commits"),
    ("everything-twice", "checkpoints"),
    ("v2", "checkpoints"),
    ("v2", "sidecars"),
    ("multipart", "checkpoints"),
    ("v2-parquet", "checkpoints"),
    ("partitioned", "last_checkpoint"),
    ("partitioned", "checksums"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("bases")


def check(root, scratch, batch):
    make_base(root, batch.base)
    count, failures = run(root, batch, scratch)
    assert not failures, "\n".join(map(str, failures[:20]))
    return count


@pytest.mark.parametrize(("base", "target"), SHORT, ids=str)
def test_a_damage_changes_no_row_unnoticed_and_breaks_no_verb(root, tmp_path, base, target):
    count = SHORT[base, target]
    batch = Batch(base, target, 0, count, seed=1, thorough=False)
    assert check(root, tmp_path / "run", batch) == count


@pytest.mark.soak
@pytest.mark.parametrize(("base", "target"), SHARES, ids=str)
def test_ten_thousand_damages_change_no_row_unnoticed(root, tmp_path, base, target):
    count = SHARES[base, target]
    assert check(root, tmp_path / "run", Batch(base, target, 0, count, seed=2)) == count


@pytest.mark.soak
@pytest.mark.parametrize(("base", "target"), SYSTEMATIC, ids=str)
def test_every_member_may_hold_any_nonsense(root, tmp_path, base, target):
    # A seventh of the ways to damage each file, which leaves none of its members out.
    assert check(root, tmp_path / "run", Batch(base, target, 0, 10**6, step=7))


def test_every_kind_of_file_is_damaged(root):
    for base, target in SHARES:
        assert target_files(make_base(root, base), target), (base, target)
    assert {base for base, _ in SHARES} == set(BASES)
