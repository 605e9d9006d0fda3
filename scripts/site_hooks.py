"""Hooks of mkdocs.yml: pages and files outside of docs/ that pages link to become part of the site.

The same Markdown is read on a code host, where such links are relative to the repository.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages in the root of the repository that the site has as well.
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
#: What the theme loads from the network where the site is opened as files.
SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add all pages of the folders that the navigation lists as a whole."""
    project = next(entry["Project"] for entry in config.nav if "Project" in entry)
    for title in ("Decisions", "Contributing"):
        pages = next(entry[title] for entry in project if title in entry)
        folder = Path(config.docs_dir) / title.lower()
        pages += [
            f"{folder.name}/{page.name}"
            for page in sorted(folder.glob("*.md"))
            if page.name != "README.md"
        ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and each file outside of docs/ that a page links to."""
    for name in ROOT_PAGES:
        content = (ROOT / name).read_text()
        files.append(File.generated(config, name, content=_relinked(content, "")))
    files.append(File.generated(config, "notebook.md", content=notebook_as_markdown()))
    for page in list(files.documentation_pages()):
        folder = posixpath.dirname(page.src_uri)
        for path, _ in _LINK.findall(page.content_string):
            target = _target(path, f"docs/{folder}")
            uri = _site_uri(target)
            is_new = uri.startswith("files/") and uri not in files.src_uris
            if is_new and (ROOT / target).is_file():  # mkdocs reports a link to nothing
                content = (ROOT / target).read_bytes()
                files.append(File.generated(config, uri, content=content))
    return files


def notebook_as_markdown() -> str:
    """Return the notebook as a page: its text, its code, and what the cells showed."""
    parts = []
    for cell in json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            shown = data.get("image/svg+xml") or data.get("text/html")
            if shown:
                html = "".join(line.strip() for line in "".join(shown).splitlines())
                parts.append(f'<div class="cell-output">{html}</div>')
            else:
                text = "".join(output.get("text") or data["text/plain"])
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.append("[Download the notebook](notebook.ipynb)")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Point links that leave docs/ to where the site has their targets."""
    del config, files
    if page.file.src_uri in ROOT_PAGES:
        return markdown
    return _relinked(markdown, f"docs/{posixpath.dirname(page.file.src_uri)}")


def on_post_page(output: str, *, page: Page, config: Any) -> str:
    """Take the script that searches without a server from the site itself."""
    del config
    depth = page.file.dest_uri.count("/")
    return output.replace(SHIM, "../" * depth + "vendor/iframe-worker-1.0.4.min.js")


def on_post_template(output: str, *, template_name: str, config: Any) -> str:
    """Do the same for pages that are not made of Markdown."""
    del template_name, config
    return output.replace(SHIM, "/vendor/iframe-worker-1.0.4.min.js")


def _target(path: str, folder: str) -> str:
    """Return the path of a link's target in the repository."""
    return posixpath.normpath(posixpath.join(folder, path))


def _site_uri(target: str) -> str:
    """Return where the site has a file of the repository."""
    if target.startswith("docs/") or target == "docs":
        return posixpath.relpath(target, "docs")
    if target in ROOT_PAGES:
        return target
    return "README.md" if target == "README.md" else f"files/{target}"


def _relinked(markdown: str, folder: str) -> str:
    """Return a page of a folder of the repository with links as the site needs them."""
    here = _site_uri(posixpath.normpath(folder)) if folder else "."

    def point(found: re.Match[str]) -> str:
        target = _target(found[1], folder)
        if folder and target.startswith("docs/"):
            return found[0]
        return f"]({posixpath.relpath(_site_uri(target), here)}{found[2] or ''})"

    return _LINK.sub(point, markdown)
