"""Draw what the demonstration prints on a terminal: ``python -m tools.picture`` runs it and writes docs/demo.svg.

``python -m tools.picture FILE`` draws the recorded output in a file instead. Of many similar lines, the picture has the
first and the last.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tools.repository import ROOT

PICTURE = ROOT / "docs" / "demo.svg"
DEMO = ROOT / "examples" / "demo.py"
WIDTH = 112
MANY = 3
"""The largest number of similar lines that the picture shows all."""

_FONT = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
"""A font that the SVG of rich would fetch from another server."""


def shortened(lines: list[str]) -> Iterator[str]:
    """Yield the lines. Of more than three similar lines in a row, yield the first, an ellipsis and the last."""
    for _, group in groupby(lines, key=lambda line: re.sub(r"[\d\s]+", "0", line)):
        similar = list(group)
        if len(similar) > MANY:
            indent = re.match(r"\s*", similar[0])
            yield from (similar[0], f"{indent[0] if indent else ''}…", similar[-1])
        else:
            yield from similar


def styled(line: str) -> Text:
    """Return a line of the demonstration in colours: the titles of its parts, its faults, and its end."""
    text = Text(line)
    if re.match(r"\d+\. ", line):
        text.stylize("bold cyan", end=line.find(":") if ":" in line else len(line))
    elif line.startswith("Everything"):
        text.stylize("bold green")
    elif "kill -9" in line:
        text.stylize("bold red")
    else:
        text.highlight_regex(r"\b0 (?:lost|missing|errors)\b|in order: True", "green")
    return text


def drawn(lines: list[str]) -> str:
    """Return the picture of a terminal with these lines."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ make demo", "bold"))
    for line in shortened(lines):
        console.print(styled(line), no_wrap=True, overflow="ellipsis", crop=True)
    return _FONT.sub("", console.export_svg(title="sbredis", theme=MONOKAI, unique_id="demo"))


def recorded() -> list[str]:
    """Run the demonstration, print its output as it comes, and return it."""
    command = [sys.executable, str(DEMO)]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if running.returncode:
        raise SystemExit(f"the demonstration ended with {running.returncode}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="recorded output of the demonstration")
    given = parser.parse_args()
    lines = given.file.read_text("utf-8").splitlines() if given.file else recorded()
    PICTURE.write_text("\n".join(line.rstrip() for line in drawn(lines).splitlines()) + "\n", "utf-8")
    print("drew", PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
