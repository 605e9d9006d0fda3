"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARY = Path(__file__).parents[2] / ".cache" / "chromium" / "chromium"


@contextmanager
def run_browser() -> Iterator[Any]:
    """Run a browser without a window; it ends with the block.

    Not for a whole session: its event loop would be in the way of other tests.
    """
    from playwright.sync_api import sync_playwright

    if not BINARY.exists():
        reason = f"{BINARY} is missing; scripts/install-chromium unpacks it"
        if os.environ.get("LAKEHAND_ALLOW_SKIPS"):
            pytest.skip(reason)
        pytest.fail(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(BINARY))
        yield browser
        browser.close()


class Complaints:
    """What a page says on the console, errors of its scripts, and reports of its policy."""

    def __init__(self, page: Any) -> None:
        self.found: list[str] = []
        page.on("console", lambda message: self.found.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("requestfailed", self._note_request)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy', event.violatedDirective, event.blockedURI))"
        )

    def _note_request(self, request: Any) -> None:
        # A stream ends, and a reload of a part is given up, when another page is opened.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.found.append(f"failed: {request.url} {request.failure}")
