"""``sbredis top``: a live screen of all entities, which owns the terminal and restores it whatever happens."""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
import termios
import tty
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import click

from sbredis._visible import visible
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION
from sbredis.cli._top_screen import ViewSettings, frame, pressed
from sbredis.operating import Sampler, row_of

__all__ = ["top"]

_WIDTH = 100
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


@command("top", examples=["sbredis top", "sbredis top --sort dead --filter orders", "sbredis top --once --output json"])
@click.option("--every", type=DURATION, default="2s", metavar="DURATION", help="The time between two readings. [2s]")
@click.option("--sort", type=click.Choice(["name", "depth", "in", "out", "oldest", "consumers", "dead"]),
              default="depth", help="The first order of the rows. [depth]")  # fmt: skip
@click.option("--filter", "text", default="", metavar="TEXT", help="Only entities whose names contain this text.")
@click.option("--once", is_flag=True, help="Print one screen, and end.")
async def top(invocation: Invocation, *, every: timedelta, sort: str, text: str, once: bool) -> None:
    """Show all entities live: depth by state, rates, the oldest message, waiting receivers, dead letters.

    Keys: s or n d i o a c x sort, r reverses, / filters, p pauses, arrows scroll, q quits. When all entities have been
    read once, the command makes at most 200 short reads a second, two for each partition, so many partitions are read
    less often.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("top needs a terminal. With --once it prints one screen.")
    view = ViewSettings(order=sort, filter=text)
    async with invocation.administration() as administration:
        sampler = Sampler(administration, max(every.total_seconds(), 0.1), most_reads=math.inf if once else 200)
        if once:
            await sampler.round()
            await asyncio.sleep(min(1.0, sampler.every))
            await sampler.round()
            if sampler.problem is not None:
                invocation.out.remark(sampler.problem)
            _print(invocation, sampler, view)
            return
        await sampler.find()  # an error here is told before the screen is taken over
        with screen() as terminal:
            reading = asyncio.create_task(sampler.run())
            try:
                await _show(terminal, str(invocation.server), sampler, view)
            finally:
                reading.cancel()
                await asyncio.wait([reading])


def _print(invocation: Invocation, sampler: Sampler, view: ViewSettings) -> None:
    sights = list(sampler.sights.values())
    if invocation.out.as_json:
        invocation.out.json([row_of(sight) for sight in sights if view.filter.lower() in sight.now.path.lower()])
        return
    width = _WIDTH
    if sys.stdout.isatty():
        with suppress(OSError):
            width = Terminal(sys.stdout.fileno()).size[0]
    for line in frame(str(invocation.server), sights, view, width):
        invocation.out.line(line)


async def _show(terminal: Terminal, title: str, sampler: Sampler, view: ViewSettings) -> None:
    """Draw the screen after each reading, and after each key, until the user quits."""
    shown = list(sampler.sights.values())
    while not view.ended:
        if not view.paused:
            shown = list(sampler.sights.values())
        heading = sampler.problem or (f"{sampler.unread:,} more to read" if sampler.unread else title)
        terminal.draw(frame(heading, shown, view, *terminal.size))
        key = asyncio.ensure_future(terminal.keys.get())
        news = asyncio.ensure_future(sampler.wait())
        try:
            await asyncio.wait({key, news}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if key.done():
                view = pressed(view, key.result())
        finally:
            key.cancel()
            news.cancel()


# -- the terminal ------------------------------------------------------------------------------------------------------


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
