"""The tokens of a text: names, keywords, constants, signs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from sbredis.exceptions import RuleSyntaxError

__all__ = ["Sort", "Token", "either", "place", "tokenize", "wrong"]

_KEYWORDS = frozenset(
    ("AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "REMOVE", "SET", "TRUE")
)
_PAIRS = frozenset(("<>", "!=", "<=", ">="))
_SIGNS = frozenset("=<>+-*/%(),.;")
_SHOWN = 24
_LINE_END = re.compile(r"\r\n|\r|\n")


class Sort(Enum):
    """The sort of a token."""

    NAME = "a name"
    DELIMITED = "a name in brackets or double quotes"
    KEYWORD = "a keyword"
    TEXT = "text"
    INTEGER = "a whole number"
    DECIMAL = "a number"
    PARAMETER = "a parameter"
    SIGN = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A token, and its position in the text."""

    sort: Sort
    text: str
    """Its meaning: a keyword or sign itself, a name or text without its quotes, a number as it is written."""
    at: int
    source: str
    """The token as it is written."""

    @property
    def found(self) -> str:
        """The token as an error shows it."""
        if self.sort is Sort.END:
            return "the end"
        shown = self.source if len(self.source) <= _SHOWN else f"{self.source[:_SHOWN]}…"
        return shown if shown.startswith(("'", '"')) else f"'{shown}'"


def place(text: str, at: int) -> tuple[int, int]:
    """Return the line and the column of a position in a text, counted from 1."""
    line, start = 1, 0
    for end in _LINE_END.finditer(text):
        if end.end() > at:
            break
        line, start = line + 1, end.end()
    return line, at - start + 1


def either(words: Iterable[str]) -> str:
    """Join words to "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def wrong(text: str, at: int, what: str, expected: tuple[str, ...] = ()) -> RuleSyntaxError:
    """Return the error for a mistake at a position in a text."""
    line, column = place(text, at)
    hoped = f", expected {either(expected)}" if expected else ""
    message = f"line {line}, column {column}: {what}{hoped}"
    return RuleSyntaxError(message, line=line, column=column, expected=expected, text=text)


def tokenize(text: str) -> list[Token]:
    """Return all tokens of a text; the last token marks the end of the text."""
    tokens: list[Token] = []
    at, size = 0, len(text)
    while at < size:
        if text[at].isspace():
            at += 1
            continue
        token = _word(text, at)
        tokens.append(token)
        at += len(token.source)
    tokens.append(Token(Sort.END, "", size, ""))
    return tokens


def _word(text: str, at: int) -> Token:
    first = text[at]
    if first.isalpha():
        source = text[at : _name_end(text, at)]
        keyword = source.upper()
        if keyword in _KEYWORDS:
            return Token(Sort.KEYWORD, keyword, at, source)
        return Token(Sort.NAME, source, at, source)
    if first == "'":
        return _enclosed(text, at, "'", Sort.TEXT)
    if first in '["':
        token = _enclosed(text, at, "]" if first == "[" else first, Sort.DELIMITED)
        if not token.text:
            raise wrong(text, at, "a name cannot be empty")
        return token
    if first in "0123456789":
        return _number(text, at)
    if first == "@":
        end = _name_end(text, at + 1)
        if end == at + 1 or not text[at + 1].isalpha():
            raise wrong(text, at, "found '@' alone", ("the name of a parameter after @",))
        return Token(Sort.PARAMETER, text[at + 1 : end], at, text[at:end])
    pair = text[at : at + 2]
    if pair in _PAIRS:
        return Token(Sort.SIGN, "<>" if pair == "!=" else pair, at, pair)
    if first in _SIGNS:
        return Token(Sort.SIGN, first, at, first)
    raise wrong(text, at, f"found {first!r}, which has no meaning here")


def _name_end(text: str, at: int) -> int:
    """Return the end of a name, which has letters and digits of any script, and underscores."""
    while at < len(text) and (text[at].isalpha() or text[at].isdecimal() or text[at] == "_"):
        at += 1
    return at


def _enclosed(text: str, at: int, quote: str, sort: Sort) -> Token:
    """Read a token in quotes; a quote inside it is written twice."""
    end = at + 1
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise wrong(text, at, f"the text that begins with {text[at]} here has no end", (quote,))
        if text[end + 1 : end + 2] != quote:
            break
        end += 2
    source = text[at : end + 1]
    return Token(sort, source[1:-1].replace(quote * 2, quote), at, source)


_NUMBER = re.compile(r"[0-9]+(?P<point>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?")


def _number(text: str, at: int) -> Token:
    match = _NUMBER.match(text, at)
    assert match
    end, source = match.end(), match[0]
    if _name_end(text, end) != end or text[end : end + 1] == "_":
        raise wrong(text, end, f"found {text[end]!r} in a number")
    if match["point"] is None and match["exponent"] is None:
        return Token(Sort.INTEGER, source, at, source)
    if math.isinf(float(source)):
        raise wrong(text, at, "the number is too large")
    return Token(Sort.DECIMAL, source, at, source)
