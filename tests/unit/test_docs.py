"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import lakehand
from lakehand.formats.delta.protocol.features import FEATURES
from lakehand.settings import SETTINGS

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

#: Decisions are told by those who took them.
PROSE = [page for page in PAGES if page.parent.name != "decisions"]
#: Pages that name source files, from the root of the clone or from `src/lakehand`.
FOR_CONTRIBUTORS = [
    page
    for page in PAGES
    if page.name == "CONTRIBUTING.md" or page.parent.name in {"contributing", "decisions"}
]


def _page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


USER_PAGES = [
    page
    for page in PROSE
    if page.parent.name in ("guides", "concepts", "operations")
    or (page.parent == ROOT / "docs" and page.name != "benchmarks.md")
    or _page_name(page) == "README.md"
]


def _generator():
    path = ROOT / "scripts" / "generate_reference.py"
    specification = importlib.util.spec_from_file_location("generate_reference", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says():
    assert _generator().outdated_pages() == [], "run: make docs"


def test_every_setting_is_documented():
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert [s.name for s in SETTINGS if f"## `{s.name}`" not in page] == []


def test_every_feature_is_documented():
    page = (ROOT / "docs/reference/features.md").read_text()
    assert [name for name in FEATURES if f"| `{name}` |" not in page] == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in _anchors(linked), target


@pytest.mark.parametrize("page", PROSE, ids=_page_name)
def test_prose_neither_belittles_nor_speaks_of_us(page):
    assert (
        re.findall(r"\b(?:simply|just|easily|obviously|we|our)\b", page.read_text(), re.IGNORECASE)
        == []
    )


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_every_option_that_a_page_names_exists(page):
    reference = (ROOT / "docs/reference/cli.md").read_text()
    commands = re.findall(r"\$ (lakehand .+)", page.read_text())
    options = {option for line in commands for option in re.findall(r" (--[a-z-]+)", line)}
    assert {option for option in options if f"`{option}" not in reference} == set()


@pytest.mark.parametrize("folder", ["guides", "concepts", "operations"])
def test_the_index_of_a_folder_lists_its_pages_by_their_titles(folder):
    index = ROOT / "docs" / folder / "README.md"
    listed = re.findall(r"^\| \[(.+?)\]\((.+?)\) \|", index.read_text(), flags=re.MULTILINE)
    pages = [page for page in sorted(index.parent.glob("*.md")) if page != index]
    titles = {page.name: page.read_text().partition("\n")[0].removeprefix("# ") for page in pages}
    assert {name: title for title, name in listed} == titles


@pytest.mark.parametrize("page", USER_PAGES, ids=_page_name)
def test_a_page_for_users_names_no_source_file(page):
    named = re.findall(r"\bsrc/\w+|\b[\w/]+\.py\b", page.read_text())
    examples = {path.name for path in (ROOT / "examples").iterdir()}
    assert [name for name in named if name.rpartition("/")[2] not in examples] == []


def test_the_readme_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "$ make demo" in readme
    assert "$ make test" in readme


def test_the_changelog_starts_with_this_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == lakehand.__version__


def test_the_package_and_the_project_have_one_version():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{lakehand.__version__}"\n' in project


def test_the_public_names_are_in_the_documentation():
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in lakehand.__all__ if name not in text] == []


@pytest.mark.parametrize("page", FOR_CONTRIBUTORS, ids=_page_name)
def test_every_source_file_that_a_page_names_exists(page):
    named = re.findall(r"`([\w./-]+/[\w.-]+\.py|\w+\.py)`", page.read_text())
    places = (ROOT, ROOT / "src" / "lakehand")
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
