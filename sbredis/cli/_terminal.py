"""A terminal that shows one screen, and whose keys are read one by one. It is restored whatever happens."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
import tty
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from sbredis._visible import visible

__all__ = ["Terminal", "keys_of", "screen"]

_SPECIAL = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Switch to the second screen and hide the cursor, and back."""


class Terminal:
    """The screen and the keys."""

    def __init__(self, output: int) -> None:
        self.keys: asyncio.Queue[str] = asyncio.Queue()
        self._output = output

    @property
    def size(self) -> tuple[int, int]:
        """The number of columns and rows."""
        size = os.get_terminal_size(self._output)
        return size.columns or 80, size.lines or 24

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines in place of the previous ones."""
        text = "\x1b[K\r\n".join(map(visible, lines))
        write(self._output, f"\x1b[H{text}\x1b[K\x1b[J")


@contextmanager
def screen() -> Generator[Terminal]:
    """Take over the terminal while the block runs."""
    keyboard, output = sys.stdin.fileno(), sys.stdout.fileno()
    loop = asyncio.get_running_loop()
    terminal = Terminal(output)
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        for key in keys_of(os.read(keyboard, 1024)):
            terminal.keys.put_nowait(key)

    try:
        tty.setcbreak(keyboard)
        write(output, _ENTER)
        loop.add_reader(keyboard, read)
        yield terminal
    finally:
        loop.remove_reader(keyboard)
        write(output, _LEAVE)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def keys_of(data: bytes) -> list[str]:
    """Return the keys of what a terminal has sent: characters, and the names of special keys."""
    if data in _SPECIAL:
        return [_SPECIAL[data]]
    found: list[str] = []
    parts: list[bytes] = re.findall(rb"\x1b(?:[\[O][0-9;]*[A-Za-z~])?|[^\x1b]+", data)
    for part in parts:
        if part in _SPECIAL:
            found.append(_SPECIAL[part])
        elif not part.startswith(b"\x1b"):
            found += [_SPECIAL.get(each.encode(), each) for each in part.decode(errors="ignore")]
    return found


def write(handle: int, text: str) -> None:
    """Write all of a text to a descriptor."""
    left = memoryview(text.encode())
    while left:
        left = left[os.write(handle, left) :]
