"""Build the documentation site into .cache/site/html: ``python -m tools.site``.

The pages are collected in .cache/site/pages, and zensical builds them as ``zensical.toml`` in this folder says.
A link to a page or heading that does not exist is an error. The site loads nothing from other servers, and works
from the file system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.repository import ROOT
from tools.site.pages import assets, pages

HERE = Path(__file__).parent
SITE = ROOT / ".cache" / "site"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?([^"'\s>]+)|<link\b[^>]*\bhref=["']?([^"'\s>]+)"""
)


SHIM = "https://unpkg.com/iframe-worker/shim"
"""The script that zensical loads for a search without a server. ``file_worker.js`` takes its place."""


def collect(folder: Path) -> int:
    """Write all pages into a folder, and return their number."""
    written = pages()
    for place, text in written.items():
        _parent(folder / place).write_text(text, "utf-8")
    for place, source in assets().items():
        shutil.copyfile(source, _parent(folder / place))
    return len(written)


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def localise(site: Path) -> None:
    """Let the pages load our own script instead of the only script from another server."""
    script = site / "assets" / "javascripts" / "file_worker.js"
    shutil.copyfile(HERE / "file_worker.js", script)
    for path in site.rglob("*.html"):
        address = os.path.relpath(script, path.parent)
        path.write_text(path.read_text("utf-8").replace(SHIM, address), "utf-8")


def outside(html: str) -> Iterator[str]:
    """Yield the addresses on other servers that a page loads something from."""
    for found in _LOADED.finditer(html):
        address = found[1] or found[2]
        if re.match(r"(?:[a-z]+:)?//", address):
            yield address


def main() -> int:
    shutil.rmtree(SITE, ignore_errors=True)
    number = collect(SITE / "pages")
    shutil.copyfile(HERE / "zensical.toml", SITE / "zensical.toml")
    shutil.copyfile(HERE / "site.css", SITE / "pages" / "site.css")
    # It runs in a folder of its own, because it empties the folder .cache beside its configuration.
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=SITE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout)
        return 1
    localise(SITE / "html")
    loaded = {
        f"{path.relative_to(SITE / 'html')} loads {address}"
        for path in (SITE / "html").rglob("*.html")
        for address in outside(path.read_text("utf-8"))
    }
    if loaded:
        print("\n".join(sorted(loaded)))
        return 1
    print(f"{number} pages in {(SITE / 'html').relative_to(ROOT)}; open {SITE / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
