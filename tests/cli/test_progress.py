"""The count of a long command on a terminal, and what is said when the command ends early."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from sbredis.cli._progress import ProgressCounter


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_count_is_shown_on_a_terminal_and_then_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressCounter("sent", total=2000) as progress:
        progress.add(1500)
    assert terminal.getvalue() == "\r\x1b[Ksent 1,500 of 2,000 messages\r\x1b[K"


def test_a_count_of_one_is_of_one_message() -> None:
    assert str(ProgressCounter("sent", total=1)) == "sent 0 of 1 message"


def test_work_may_find_out_later_how_much_it_is() -> None:
    progress = ProgressCounter("examined", "entity", plural="entities")
    assert str(progress) == "examined 0 entities"
    progress.reach(1, 2)
    assert str(progress) == "examined 1 of 2 entities"


def test_beside_other_output_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressCounter("received", beside_output=True) as progress:
        progress.add()
    assert terminal.getvalue() == ""


def test_an_interrupted_question_is_not_told_a_second_time(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*, after: bool) -> None:
        with ProgressCounter("deleted") as progress:
            with progress.asking():
                if not after:
                    raise KeyboardInterrupt
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(after=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(KeyboardInterrupt):
        interrupted(after=True)
    assert capsys.readouterr().err == "interrupted: deleted 0 messages\n"


@pytest.mark.parametrize(
    ("error", "count", "said"),
    [
        (KeyboardInterrupt(), 0, "interrupted: sent 0 messages\n"),
        (asyncio.CancelledError(), 1, "interrupted: sent 1 message\n"),
        (OSError(), 2, "stopped: sent 2 messages\n"),
        (OSError(), 0, ""),
        (BrokenPipeError(), 2, ""),
    ],
)
def test_work_that_ends_early_says_how_far_it_came(
    capsys: pytest.CaptureFixture[str], error: BaseException, count: int, said: str
) -> None:
    def work() -> None:
        with ProgressCounter("sent") as progress:
            progress.add(count)
            raise error

    with pytest.raises(type(error)):
        work()
    assert capsys.readouterr().err == said
