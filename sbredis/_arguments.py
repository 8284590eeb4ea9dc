"""Refuse wrong arguments of the programs ``sbredis.workers`` and ``sbredis.spark`` as the command ``sbredis`` does."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

__all__ = ["ArgumentParser"]

_USAGE = 2
_OPTION = re.compile(r"--?[A-Za-z][^\s=]*")
_FORMS = (
    (re.compile(r"the following arguments are required: ([^,]+)"), r"Missing argument '\1'."),
    (re.compile(r"the following arguments are required: (.+)"), r"Missing arguments: \1."),
    (re.compile(r"unrecognized arguments: (.+)"), r"Got unexpected arguments: \1."),
    (re.compile(r"argument (\S+): (.+)", re.DOTALL), r"Invalid value for '\1': \2."),
)
"""The texts of argparse, and what is said in their place."""


class ArgumentParser(argparse.ArgumentParser):
    """A parser that names the wrong argument, the nearest right one, and the command that shows the help."""

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] -- it has an overload for each namespace
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Refuse an unknown option before anything else that is wrong, and parse the arguments."""
        given: list[str] = list(sys.argv[1:] if args is None else args)
        for word in given:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # the other words are no options, or belong to another parser
            if (option := _OPTION.match(word)) and " " not in word:
                self._require_option(option.group())
        return super().parse_known_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """End the program with this message and the command that shows the help."""
        for pattern, form in _FORMS:
            if (match := pattern.fullmatch(message)) is not None:
                message = match.expand(form).replace("..", ".")
                break
        text = f"{message[0].upper()}{message[1:]}"
        self.exit(_USAGE, f"sbredis: {text}{'' if text[-1] in '.?' else '.'}\nTry '{self.prog} --help' for help.\n")

    def _require_option(self, name: str) -> None:
        known = self._option_string_actions
        if name.startswith("--") and any(each.startswith(name) for each in known):
            return  # it is an option or the beginning of one
        if not name.startswith("--") and name[:2] in known:
            return
        shown = [option for option, action in known.items() if action.help != argparse.SUPPRESS]
        self.error(f"No such option '{name}'.{_nearest(name, shown)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            self.error(f"No such {str(action.metavar).lower()} {value!r}.{_nearest(value, names)}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(map(repr, names))}")


def _nearest(name: str, names: Iterable[str]) -> str:
    known = {each.lstrip("-"): each for each in names}
    near = difflib.get_close_matches(name.lstrip("-"), known, 1)
    return f" Did you mean {known[near[0]]!r}?" if near else ""
