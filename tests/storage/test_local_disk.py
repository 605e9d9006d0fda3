"""What only local disk does: durability, symbolic links, names that are file names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakehand
from lakehand.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreQuotaError,
    StoreUnreachableError,
    UnsafePathError,
)
from lakehand.storage import Store, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "table").mkdir()
    return tmp_path / "table"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(root)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The calls that make things visible or durable, in order, as `name path-below-tmp_path`."""
    recorded: list[str] = []

    def tell(name: str, path: str) -> None:
        place = os.path.relpath(path, tmp_path)
        recorded.append(f"{name} {'temporary' if place.endswith('.tmp') else place}")

    def wrap(name: str, path_of) -> None:
        real = getattr(os, name)

        def call(*arguments, **options):
            tell(name, path_of(*arguments))
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    wrap("fsync", lambda descriptor: str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    wrap("link", lambda source, target: target)
    wrap("replace", lambda source, target: target)
    wrap("mkdir", lambda path, mode: path)
    wrap("unlink", lambda path: path)
    return recorded


def leftovers(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root) for name in names if name.endswith(".tmp")]


def test_put_if_absent_is_durable_before_it_is_visible_and_after(store, calls):
    store.put_if_absent("0.json", b"{}")

    assert calls == ["fsync temporary", "link table/0.json", "unlink temporary", "fsync table"]


def test_put_is_durable_before_it_replaces_and_after(store, calls):
    store.put("x", b"1")

    assert calls == ["fsync temporary", "replace table/x", "fsync table"]


def test_a_writer_is_durable_when_it_is_closed(store, calls):
    with store.open_writer("x") as writer:
        writer.write(b"1")
        assert calls == []

    assert calls == ["fsync temporary", "replace table/x", "fsync table"]


def test_a_published_file_is_durable_when_its_writer_is_closed(store, calls):
    with store.open_writer("x") as writer:
        writer.write(b"1")
        writer.publish()
        assert calls == ["replace table/x"]

    assert calls == ["replace table/x", "fsync table/x", "fsync table"]


def test_new_directories_are_made_durable_from_the_top_before_the_file(store, calls):
    store.put_if_absent("a/b/0.json", b"{}")

    assert calls[:5] == [
        "mkdir table/a",
        "fsync table",
        "mkdir table/a/b",
        "fsync table/a",
        "fsync temporary",
    ]
    assert calls[-1] == "fsync table/a/b"


def test_the_root_itself_is_made_durable(tmp_path, calls):
    open_store(tmp_path / "new" / "table").put("x", b"")

    assert calls[:4] == ["mkdir new", "fsync .", "mkdir new/table", "fsync new"]


def test_a_lost_race_leaves_no_temporary_file(store, root):
    store.put_if_absent("x", b"1")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("x", b"2")

    assert leftovers(root) == []


def test_a_file_that_a_crash_left_behind_is_not_listed(store, root):
    store.put("d/x", b"1")
    writer = store.open_writer("d/y")
    writer.write(b"half")

    assert len(leftovers(root)) == 1
    assert [info.key for info in store.list()] == ["d/x"]
    assert [info.key for info in store.list_directory("d")[1]] == ["d/x"]
    writer.abort()
    assert leftovers(root) == []


def test_the_owner_of_a_name_deletes_what_a_dead_writer_left_of_it(store, root):
    writers = [
        store.open_writer(f"d/{name}") for name in ("mine-1", "mine-2" + "x" * 240, "theirs")
    ]
    store.put("d/mine-3", b"1")

    store.delete_unfinished("d", names=["mine-"])
    store.delete_unfinished("missing", names=["mine-"])

    assert [name[:8] for name in leftovers(root)] == [".theirs."]
    assert store.exists("d/mine-3")
    for writer in writers:
        writer.abort()


@pytest.mark.parametrize("name", [".lakehand", ".lakehand-x.tmp", ".x.tmp", "x.tmp"])
def test_a_name_like_a_temporary_one_is_listed(store, name):
    store.put(name, b"")

    assert [info.key for info in store.list()] == [name]


@pytest.mark.parametrize("key", ["a b%20c", "é", "#", "?", "=", "%3A", "+", ":", "%", "a%2Fb"])
def test_a_key_is_the_name_of_the_file(store, root, key):
    store.put(f"d/{key}", b"1")

    assert [path.name for path in (root / "d").iterdir()] == [key]
    assert store.local_path(f"d/{key}") == root / "d" / key


def test_a_root_with_special_characters_is_opened_by_path_and_by_url(tmp_path):
    store = open_store(tmp_path / "a b%20c#")
    store.put("x", b"1")

    assert (tmp_path / "a b%20c#" / "x").read_bytes() == b"1"
    assert open_store(store.url).get("x") == b"1"


def test_files_get_the_usual_permissions(store, root):
    store.put("x", b"")
    (root / "plain").touch()

    mode = stat.S_IMODE((root / "plain").stat().st_mode)
    assert stat.S_IMODE((root / "x").stat().st_mode) == mode


def test_a_symbolic_link_out_of_the_root_is_refused(store, root, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    (root / "d").symlink_to(tmp_path / "outside")
    (root / "f").symlink_to(tmp_path / "outside" / "secret")

    for act in (store.get, store.head, store.local_path, store.open_writer):
        for key in ("d/secret", "f"):
            with pytest.raises(UnsafePathError, match="symbolic link"):
                act(key)
    with pytest.raises(UnsafePathError):
        store.put_if_absent("d/new", b"")
    assert [failure.key for failure in store.delete(["d/secret"])] == ["d/secret"]
    assert (tmp_path / "outside" / "secret").exists()


def test_a_listing_refuses_a_symbolic_link_out_of_the_root(store, root, tmp_path):
    (root / "f").symlink_to(tmp_path)

    with pytest.raises(UnsafePathError, match="symbolic link"):
        list(store.list())
    with pytest.raises(UnsafePathError, match="symbolic link"):
        store.list_directory()


def test_a_symbolic_link_inside_the_root_is_followed(store, root):
    store.put("d/x", b"1")
    (root / "e").symlink_to(root / "d")
    (root / "y").symlink_to(root / "d" / "x")
    (root / "dangling").symlink_to(root / "nothing")

    assert store.get("e/x") == store.get("y") == b"1"
    assert [(info.key, info.bytes) for info in store.list()] == [("d/x", 1), ("y", 1)]


def test_a_root_behind_a_symbolic_link_is_a_root(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    open_store(tmp_path / "link").put("x", b"1")

    assert (root / "x").read_bytes() == b"1"


def test_a_directory_is_no_object(store):
    store.put("d/x", b"")

    for act in (store.get, store.head):
        with pytest.raises(ObjectNotFoundError):
            act("d")
    with pytest.raises(StorageError):
        store.put("d", b"")
    with pytest.raises(StorageError):
        store.put("d/x/y", b"")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreQuotaError),
        (errno.EDQUOT, StoreQuotaError),
        (errno.EACCES, AccessDeniedError),
        (errno.EROFS, AccessDeniedError),
        (errno.EIO, StorageError),
    ],
)
def test_what_the_disk_says_becomes_a_typed_error(store, root, monkeypatch, number, kind):
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    for act in (store.put, store.put_if_absent):
        with pytest.raises(kind) as raised:
            act("x", b"")
        assert type(raised.value) is kind
        assert raised.value.store_code == errno.errorcode[number]
        assert bool(raised.value.hint) == (kind is AccessDeniedError)
    assert list(store.list()) == []
    assert leftovers(root) == []


def test_a_file_system_without_hard_links_is_refused_for_commits(store, root, monkeypatch):
    def fail(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(ConditionalPutError, match="hard links"):
        store.put_if_absent("x", b"")
    assert leftovers(root) == []


def test_a_put_if_absent_of_unknown_durability_is_an_unknown_answer(store, root, monkeypatch):
    real = os.fsync

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnreachableError):
        store.put_if_absent("x", b"1")
    assert (root / "x").read_bytes() == b"1"


def test_absolute_paths_of_a_log_lead_out_of_the_root_on_purpose(store, root, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"1")

    other, key = store.resolve(f"{tmp_path}/elsewhere")
    assert other.get(key) == b"1"
    other, key = store.resolve(f"file:{tmp_path}/elsewhere")
    assert other.get(key) == b"1"
    assert store.resolve(f"file://{root}/d/x") == (store, "d/x")
    with pytest.raises(UnsafePathError):
        store.resolve(f"{root}/../elsewhere")


segments = st.text("ab-./0é", min_size=1, max_size=3).filter(
    lambda name: "/" not in name and name not in {".", ".."}
)


@given(data=st.data())
def test_listings_have_the_order_of_keys_from_any_start(data, tmp_path_factory):
    root = tmp_path_factory.mktemp("order")
    files = data.draw(st.lists(st.lists(segments, min_size=1, max_size=3), max_size=12))
    for file in files:
        path = root.joinpath(*file)
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    expected = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    after = data.draw(st.sampled_from(expected) if expected else st.none()) or "a"

    assert [info.key for info in open_store(root).list()] == expected
    found = [info.key for info in open_store(root).list(after=after)]
    assert found == [key for key in expected if key > after]


def test_a_table_in_a_directory_that_may_not_be_entered_is_a_typed_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", deny)
        with pytest.raises(AccessDeniedError, match="Permission denied"):
            lakehand.open_table(root)


def test_a_name_that_no_directory_can_have_is_not_found(root: Path) -> None:
    assert not open_store(root).has_directory("x" * 300)
    with pytest.raises(ObjectNotFoundError, match="too long"):
        lakehand.open_table(root / ("x" * 300))
