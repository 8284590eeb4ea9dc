"""``sbredis top``: the screen as text, the keys, and the live screen in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.aio import ServiceBusClient
from sbredis.cli._top import keys_of
from sbredis.cli._top_screen import ViewSettings, frame, pressed
from sbredis.model import ServiceBusMessage
from sbredis.operating import Sample, Sampler, Sight
from tests.cli.conftest import Bus
from tests.operating.samples import sample

SIGHTS = [
    Sight(sample("orders", 2, active=600, locked=200, scheduled=200, arrived=2000, oldest=90, consumers=2)).then(
        sample("orders", 4, active=500, locked=200, scheduled=200, arrived=2400, oldest=92, consumers=2)
    ),
    Sight(sample("news/subscriptions/all-of-the-readers-in-europe", active=5, dead=12_345, oldest=7200)),
    Sight(sample("idle", 2, arrived=7)).then(sample("idle", 4, arrived=7, unavailable=1)),
]

AT_40 = """\
905 messages · 12.3k dead letters

NAME               ▼DEPTH  OLDEST   DEAD
orders                900     92s      0
news/sub…n-europe       5      2h  12.3k
! idle                  0       -      0
█ active  ▓ locked  ▒ delayed, deferred…
"""

AT_80 = """\
redis://db · 3 entities · 905 messages · 12.3k dead letters

NAME                        ▼DEPTH           IN/S   OUT/S  OLDEST WAITING   DEAD
orders                         900 ███▓░      200     250     92s       2      0
news/subscri…ers-in-europe       5 █            -       -      2h       0  12.3k
! idle                           0              -       -       -       0      0
█ active  ▓ locked  ▒ delayed, deferred  ░ scheduled
"""

AT_120 = """\
redis://db · 3 entities · 905 messages · 12.3k dead letters

NAME                                      ▼DEPTH                                     IN/S   OUT/S  OLDEST WAITING   DEAD
orders                                       900 ██████████████████▓▓▓▓▓▓▓░░░░░░░     200     250     92s       2      0
news/subscriptions/…he-readers-in-europe       5 █                                      -       -      2h       0  12.3k
! idle                                         0                                        -       -       -       0      0
█ active  ▓ locked  ▒ delayed, deferred  ░ scheduled
"""


@pytest.mark.parametrize(("width", "shown"), [(40, AT_40), (80, AT_80), (120, AT_120)])
def test_the_screen_fits_its_width(width: int, shown: str) -> None:
    assert "\n".join(frame("redis://db", SIGHTS, ViewSettings(), width)) + "\n" == shown


def names(state: ViewSettings, height: int | None = None) -> list[str]:
    """Return the first words of the rows that are shown."""
    lines = frame("x", SIGHTS, state, 120, height)
    rows = lines[3 : len(lines) - (1 if height is None else 2)]
    return [line.removeprefix("! ").split("/")[0].split()[0] for line in rows]


PRESSED = {
    "": (["orders", "news", "idle"], ""),
    "n": (["idle", "news", "orders"], ""),
    "nr": (["orders", "news", "idle"], ""),
    "r": (["idle", "news", "orders"], ""),
    "x": (["news", "idle", "orders"], ""),
    "a": (["news", "orders", "idle"], ""),
    "i": (["orders", "idle", "news"], ""),
    "s": (["orders", "idle", "news"], "the next order is by incoming messages"),
    "c": (["orders", "idle", "news"], ""),
    "/ORD": (["orders"], "the filter does not regard case"),
    "/q\x7fe\n": (["orders", "news", "idle"], "keys go into the filter"),
    "/ord\x1b": (["orders", "news", "idle"], "Esc clears the filter"),
    "/ord\n\x1b": (["orders", "news", "idle"], "also later"),
    "/zzz": ([], ""),
}


@pytest.mark.parametrize("keys", PRESSED)
def test_keys_sort_and_filter(keys: str) -> None:
    state = ViewSettings()
    for character in keys:
        for key in keys_of(character.encode()):
            state = pressed(state, key)
    assert names(state) == PRESSED[keys][0], PRESSED[keys][1]


def test_keys_pause_scroll_and_end() -> None:
    assert pressed(ViewSettings(), "p").paused
    assert not pressed(pressed(ViewSettings(), " "), "p").paused
    assert frame("x", SIGHTS, ViewSettings(paused=True), 80)[0].startswith("PAUSED")
    assert pressed(ViewSettings(), "q").ended
    assert not pressed(ViewSettings(typing=True), "q").ended
    state = pressed(pressed(ViewSettings(), "down"), "j")
    assert (state.first, pressed(state, "page up").first, pressed(state, "k").first) == (2, 0, 1)
    assert names(ViewSettings(), 7) == ["orders", "news"]
    assert names(ViewSettings(first=1), 7) == ["news", "idle"]
    assert names(ViewSettings(first=99), 7) == ["news", "idle"]


def test_what_a_terminal_sends_is_read_as_keys() -> None:
    assert keys_of("aü\x1b[Ab\x1b[5~\x1b[15~c\r".encode()) == ["a", "ü", "up", "b", "page up", "c", "enter"]
    assert keys_of(b"\x1b") == ["escape"]
    assert keys_of(b"") == []


def test_rates_that_are_the_least_are_marked() -> None:
    sight = Sight(sample("q", 1, active=16)).then(sample("q", 3, active=10, dead=8))
    row = frame("x", [sight], ViewSettings(), 120)[3].split()
    assert [word for word in row if word.startswith("≥")] == ["≥1.0", "≥4.0"]


SAMPLES = st.builds(
    sample,
    st.text("abc/-$ü", min_size=1, max_size=80),
    st.floats(0, 10),
    active=st.integers(0, 10**13),
    locked=st.integers(0, 99),
    dead=st.integers(0, 10**9),
    oldest=st.integers(0, 10**8),
    consumers=st.integers(0, 10**6),
    arrived=st.none() | st.integers(0, 10**13),
)


@given(st.lists(SAMPLES, max_size=6), st.integers(20, 200), st.integers(3, 30), st.text(max_size=60))
def test_no_line_is_wider_than_the_screen(samples: list[Sample], width: int, height: int, title: str) -> None:
    sights = [Sight(each).then(each) for each in samples]
    for state in (ViewSettings(), ViewSettings(typing=True, filter="a"), ViewSettings(paused=True, order="name")):
        lines = frame(title, sights, state, width, height)
        assert max(map(len, lines)) <= width
        assert len(lines) <= height


# -- the command -------------------------------------------------------------------------------------------------------


def test_one_screen_is_printed(bus: Bus) -> None:
    bus.queue()
    bus.administration(lambda administration: administration.create_topic("news"))
    bus.administration(lambda administration: administration.create_subscription("news", "all"))
    bus.did("send", "orders", "x", "--count", "3")
    bus.did("send", "orders", "x", "--schedule", "1h")
    ran = bus.did("top", "--once", "--every", "0.1", "--sort", "name")
    assert [line.split()[0] for line in ran.out.splitlines()[3:-1]] == ["news", "news/subscriptions/all", "orders"]
    (row,) = bus.did("top", "--once", "--every", "0.1", "--filter", "ord", "-o", "json").json
    assert 0 <= row.pop("oldest_age_seconds") < 3600
    assert row == {
        "entity": "orders", "depth": 4, "active": 3, "locked": 0, "delayed": 0, "deferred": 0, "scheduled": 1,
        "dead": 0,
        "in_per_second": 0.0, "out_per_second": 0.0, "rates_are_least": False,
        "waiting_receivers": 0, "unavailable_partitions": 0,
    }  # fmt: skip


def test_subscriptions_have_rates(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a subscription that gets all messages are exact, and those of another one are the least."""
    bus.administration(lambda administration: administration.create_topic("news"))
    for name in ("all", "some"):
        bus.did("subscription", "create", "news", name)
    bus.did("rule", "update", "news", "some", "$Default", "--filter", "wanted = TRUE")
    rounds = 0
    read = Sampler.round

    async def read_and_send(watch: Sampler) -> None:
        nonlocal rounds
        await read(watch)
        rounds += 1
        if rounds == 1:
            async with ServiceBusClient(bus.url) as client:
                async with client.get_topic_sender("news") as sender:
                    for wanted in (True, False):
                        properties: dict[str | bytes, Any] = {"wanted": wanted}
                        messages = [ServiceBusMessage("x", application_properties=properties) for _ in range(20)]
                        await sender.send_messages(messages)
                for name in ("all", "some"):
                    async with client.get_subscription_receiver("news", name) as receiver:
                        await receiver.complete_messages(await receiver.receive_messages(5))

    monkeypatch.setattr(Sampler, "round", read_and_send)
    rows = bus.did("top", "--once", "--every", "0.1", "--sort", "name", "-o", "json").json
    found = {row["entity"]: row for row in rows}
    exact, least = found["news/subscriptions/all"], found["news/subscriptions/some"]
    assert (exact["depth"], exact["rates_are_least"]) == (35, False)
    assert exact["in_per_second"] > 0
    assert exact["out_per_second"] / exact["in_per_second"] == pytest.approx(5 / 40)
    assert (least["depth"], least["rates_are_least"], least["out_per_second"]) == (15, True, 0)
    assert least["in_per_second"] > 0


def test_without_a_terminal_it_is_refused(bus: Bus) -> None:
    ran = bus.run("top")
    assert (ran.code, ran.out) == (2, "")
    assert "--once" in ran.err


class Screen:
    """The command in a pseudo-terminal."""

    def __init__(self, url: str) -> None:
        self.keyboard, self._slave = pty.openpty()
        termios.tcsetwinsize(self._slave, (24, 80))
        self.before = termios.tcgetattr(self._slave)
        command = [sys.executable, "-m", "sbredis.cli", "top", "--every", "0.2", "--url", url]
        self.process = subprocess.Popen(command, stdin=self._slave, stdout=self._slave, stderr=subprocess.PIPE)
        self.shown = ""

    def until(self, condition: Callable[[str], object]) -> None:
        """Read what is shown until a condition holds."""
        deadline = time.monotonic() + 60
        while not condition(self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self.keyboard], [], [], 0.1)[0]:
                self.shown += os.read(self.keyboard, 65536).decode()

    def press(self, keys: str) -> None:
        """Forget what was shown, and press keys."""
        self.shown = ""
        os.write(self.keyboard, keys.encode())

    def end(self) -> int:
        """Wait for the end. Return the exit code; the terminal must be as it was."""
        self.until(lambda shown: shown.endswith("\x1b[?25h\x1b[?1049l"))
        code = self.process.wait(60)
        assert termios.tcgetattr(self._slave) == self.before
        return code

    def close(self) -> None:
        """Release everything."""
        self.process.kill()
        self.process.communicate()
        os.close(self._slave)
        os.close(self.keyboard)


@contextmanager
def live(url: str) -> Iterator[Screen]:
    screen = Screen(url)
    try:
        yield screen
    finally:
        screen.close()


def test_the_screen_is_live_and_obeys_keys(bus: Bus) -> None:
    bus.queue()
    bus.queue("letters")
    bus.did("send", "orders", "x", "--count", "7")
    with live(bus.url) as screen:
        screen.until(lambda shown: re.search(r"orders +7 █+ ", shown) and "q quit" in shown)
        assert screen.shown.startswith("\x1b[?1049h\x1b[?25l")
        bus.did("send", "orders", "x")
        screen.until(lambda shown: re.search(r"orders +8 ", shown))
        screen.press("/lett\n")
        screen.until(lambda shown: "filter: lett   (" in shown and "1 entity" in shown)
        screen.press("q")
        assert screen.end() == 0


def test_the_terminal_is_restored_after_an_interruption(bus: Bus) -> None:
    bus.queue()
    with live(bus.url) as screen:
        screen.until(lambda shown: "orders" in shown)
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 130
