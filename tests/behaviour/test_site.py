"""The documentation site builds without a broken link, and works in a browser without a network."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.browsers import Complaints, run_browser

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "docs" / "vendor"
#: What a browser would load while it shows a page.
LOADED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?(https?:[^\s\">]+)|<link[^>]+href=\"?http")
#: One page of each kind: start, code, wide tables, pictures, generated, from the root.
SHOWN = (
    "index.html",
    "tutorial.html",
    "comparison.html",
    "concepts/skipping.html",
    "reference/settings.html",
    "CHANGELOG.html",
)

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", place]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return place


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site):
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        html = site / page.with_name(page.name.replace("README.md", "index.md")).with_suffix(
            ".html"
        )
        assert html.exists(), page
    for html in site.rglob("*.html"):
        assert LOADED.search(html.read_text()) is None, html


def test_files_of_others_are_as_they_were_published():
    sums = (line.split() for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    expected = {name: value for value, name in sums}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")
    }
    assert found == expected


def test_pages_fit_the_screen_and_search_and_copying_work_without_a_server(site):
    with run_browser() as browser:
        for width in (390, 1440):
            page = browser.new_page(viewport={"width": width, "height": 900})
            complaints = Complaints(page)
            for name in SHOWN:
                page.goto(f"file://{site}/{name}")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert complaints.found == []
        page.get_by_placeholder("Search").fill("quarantine")
        results = page.locator(".md-search-result__link")
        results.first.wait_for(timeout=20_000)
        assert any("vacuum" in (one.get_attribute("href") or "") for one in results.all())

        check_copying(page, site)


def check_copying(page, site):
    """Check that commands are copied without prompts and output."""
    page.goto(f"file://{site}/tutorial.html")
    blocks = page.locator(".language-console code").evaluate_all(
        "(all) => all.map((one) => {"
        " one.setAttribute('data-md-copying', ''); return one.innerText })"
    )
    copied = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert "lakehand inspect lake/orders" in copied
    assert [line for line in copied if line.startswith(("$", "compact:", "verify:"))] == []
