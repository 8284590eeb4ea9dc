"""The synchronous classes copy the docstrings of the asynchronous ones, and adapt the words that differ."""

from __future__ import annotations

import inspect

from sbredis.sync._docstrings import documented_by


class Asynchronous:
    """Receives with ``async for``.

    More of it.
    """

    async def receive(self) -> int:
        """Receive; used inside ``async with receiver``."""
        return 1

    async def close(self) -> None:
        """Close, and cancel."""

    @property
    def name(self) -> str:
        """The name."""
        return "a"

    @classmethod
    def make(cls) -> Asynchronous:
        """Make one."""
        return cls()


@documented_by(Asynchronous)
class Synchronous:
    def receive(self) -> int:
        return 1

    def close(self) -> None:
        """Close, and wait."""

    def other(self) -> None:
        pass

    @property
    def name(self) -> str:
        return "s"

    @classmethod
    def make(cls) -> Synchronous:
        return cls()


def test_a_missing_docstring_is_taken_from_the_asynchronous_class() -> None:
    assert inspect.getdoc(Synchronous) == "Receives with ``for``.\n\nMore of it."
    assert Synchronous.receive.__doc__ == "Receive; used inside ``with receiver``."
    assert Synchronous.name.__doc__ == "The name."
    assert Synchronous.make.__doc__ == "Make one."


def test_an_existing_docstring_stays_and_no_other_docstring_is_invented() -> None:
    assert Synchronous.close.__doc__ == "Close, and wait."
    assert Synchronous.other.__doc__ is None
    assert Asynchronous.close.__doc__ == "Close, and cancel."


def test_the_own_docstring_of_a_class_may_follow_the_copied_one() -> None:
    @documented_by(Asynchronous, then_own=True)
    class Further:
        """From threads.

        At once.
        """

    @documented_by(Asynchronous)
    class Own:
        """Something else."""

    assert inspect.getdoc(Further) == "Receives with ``for``.\n\nMore of it.\n\nFrom threads.\n\nAt once."
    assert Own.__doc__ == "Something else."


def test_nothing_is_copied_if_there_are_no_docstrings() -> None:
    """With ``-OO`` Python removes docstrings."""

    class Bare:
        def close(self) -> None:
            pass

    @documented_by(Bare, then_own=True)
    class Facade:
        def close(self) -> None:
            pass

    assert (Facade.__doc__, Facade.close.__doc__) == (None, None)
