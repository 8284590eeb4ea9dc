"""Reads the contract in the header of an operation: its purpose, keys, arguments, result, refusals and facts. Pure.

The line ``Facts:`` of a header is the only place that lists what is known of a script beside its form. The facts are:

- ``use``: a call uses the entity, so that it is not removed as unused.
- ``repeatable``: a call has the same effect when it runs twice, even without a lane.
- ``laneless``: a call has no lane.
- ``freeing``: a call takes in no data, so a server that has reached its memory limit may run it. The flag ``allow-oom``
  says this of all calls of a script.
- ``at_limit``: the script has a second form, which a server runs at its memory limit. It is for calls that store no
  more than they remove.
- ``preloaded``: every client calls the script soon after it connects.

A fact may hold for some calls only: ``repeatable if wanted is 0`` holds for calls whose argument ``wanted`` is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from sbredis.engine._assembled import NEVER_HOLDS, Fact
from sbredis.engine._expansion import COMMENT, DIRECTIVE, NAME, SHEBANG, ScriptFormatError

__all__ = ["NEVER_HOLDS", "Contract", "Fact", "contract", "facts_of_fragment", "refusals"]

_SECTION = re.compile(r"(?P<kind>KEYS|ARGV)\[|(?P<label>Result|Refusals|Facts):")
_NUMBERED = re.compile(
    rf"(?:KEYS|ARGV)\[(?P<first>[1-9]\d*)(?:-(?P<last>[1-9]\d*)|(?P<rest>\.\.\.))?\]\s+(?P<name>{NAME})(?:\s+(?P<text>.*))?",
    re.DOTALL,
)
_ORDER = ("purpose", "KEYS", "ARGV", "Result", "Refusals", "Facts")
_FACTS = ("use", "repeatable", "laneless", "freeing", "at_limit", "preloaded")
_FACT = re.compile(rf"(?P<name>{'|'.join(_FACTS)})(?: if (?P<argument>{NAME}) is (?P<value>\w+))?")


@dataclass(frozen=True, slots=True)
class Contract:
    """The contract in the header of an operation, for tests that compare the Python side with it."""

    purpose: str
    flags: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]
    """The keys in order, by name and number: ``KEYS[1-27] partition`` is ``("partition", 27)``; 0 stands for any number
    of keys.
    """
    call: tuple[str, ...]
    """The arguments that every call of the engine has, listed under the name ``call``; they come first."""
    arguments: tuple[str, ...]
    """The operation's own arguments, in order, without the variadic rest."""
    rest: str | None
    """The name of the variadic rest: the last arguments, of which there may be any number."""
    result: str
    refusals: tuple[str, ...]
    """The codes of its refusals; ``call`` stands for the codes of ``includes/calls/begin.lua``."""
    facts: Mapping[str, Fact] = field(default_factory=dict[str, Fact])

    def fact(self, name: str) -> Fact:
        """Return the fact of this name."""
        return self.facts.get(name, NEVER_HOLDS)

    @property
    def takes_run_id(self) -> bool:
        """Whether the transport adds the first argument of a call."""
        return (self.call + self.arguments)[:1] == ("run_id",)


@dataclass(slots=True)
class _HeaderSection:
    kind: str
    line: int
    text: str
    open: bool = True


def contract(source: str) -> Contract:
    """Return the contract in an operation's header. Reads the file's text, because the text that is sent has no header.

    Raises :class:`ScriptFormatError`, which names the line and the text that was expected there.
    """
    first, _, _ = source.partition("\n")
    shebang = SHEBANG.fullmatch(first)
    if not shebang:
        _expected("'#!lua' or '#!lua flags=…'", first, 1)
    sections = _sections(source)
    by_kind = {kind: [section for section in sections if section.kind == kind] for kind in _ORDER}
    for kind, what in (("purpose", "its purpose"), ("Result", "'Result:'"), ("Refusals", "'Refusals:'")):
        if not any(section.text.strip() for section in by_kind[kind]):
            raise ScriptFormatError(f"the header does not state {what}")
    call, arguments, rest = _arguments(by_kind["ARGV"])
    return Contract(
        purpose=by_kind["purpose"][0].text.strip(),
        flags=tuple((shebang["flags"] or "").split(",")) if shebang["flags"] else (),
        keys=_keys(by_kind["KEYS"]),
        call=call,
        arguments=arguments,
        rest=rest,
        result=by_kind["Result"][0].text.strip(),
        refusals=_codes(by_kind["Refusals"][0]),
        facts=_facts(by_kind["Facts"]),
    )


def facts_of_fragment(source: str) -> Mapping[str, Fact]:
    """Return the facts in the header of a fragment."""
    return _facts([section for section in _sections(source) if section.kind == "Facts"])


def refusals(source: str) -> tuple[str, ...]:
    """Return the codes after ``Refusals:`` in the header of a Lua file; empty if there is no such line."""
    return tuple(code for section in _sections(source) if section.kind == "Refusals" for code in _codes(section))


def _expected(what: str, found: str, line: int) -> NoReturn:
    raise ScriptFormatError(f"line {line}: expected {what}, found {found!r}")


def _header(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield the comments at the top with their line numbers; None for a directive, which is not in the contract."""
    for number, line in enumerate(source.split("\n"), 1):
        if number == 1 and line.startswith("#!"):
            continue
        if not COMMENT.match(line):
            return
        yield number, None if DIRECTIVE.match(line) else line.strip()[2:].removeprefix(" ")


def _sections(source: str) -> list[_HeaderSection]:
    sections = [_HeaderSection("purpose", 2, "")]
    for number, text in _header(source):
        last = sections[-1]
        if text is None:
            if last.kind in ("Refusals", "Facts"):
                break  # comments between the directives and the code describe the code and are not part of the header
            continue
        start = _SECTION.match(text)
        if start:
            sections.append(_begun(start, number, text, last))
        elif not text.strip():
            last.open = last.kind in ("purpose", "Result")
            last.text += "\n"
        elif last.open and (text[0].isspace() or last.kind not in ("KEYS", "ARGV")):
            last.text += f"\n{text}"
        else:
            _expected(_following(last), text, number)
    return sections


def _begun(start: re.Match[str], number: int, text: str, last: _HeaderSection) -> _HeaderSection:
    kind = start["kind"] or start["label"]
    order = _ORDER.index(kind) - _ORDER.index(last.kind)
    if order < 0 or (order == 0 and start["label"]):
        _expected(_following(last), text, number)
    return _HeaderSection(kind, number, text if start["kind"] else text[start.end() :])


def _following(section: _HeaderSection) -> str:
    """Return text for an error: the names of the lines that may follow a section."""
    kind = section.kind
    if kind in ("Refusals", "Facts"):
        return "'-- @use NAME …' or the code" if kind == "Facts" else "'Facts:', '-- @use NAME …' or the code"
    numbered = [f"'{other}[…]'" for other in ("KEYS", "ARGV") if _ORDER.index(other) >= _ORDER.index(kind)]
    continued = "an indented line or " if section.open and kind in ("KEYS", "ARGV") else ""
    return continued + " or ".join([*numbered, "'Refusals:'" if kind == "Result" else "'Result:'"])


def _numbered(sections: list[_HeaderSection]) -> Iterator[tuple[_HeaderSection, re.Match[str], int]]:
    """Yield each entry of KEYS or ARGV, and the number of its values (0 for the rest). Refuse gaps in the numbers."""
    number = 1
    names: set[str] = set()
    ended = False
    for section in sections:
        entry = _NUMBERED.fullmatch(section.text.rstrip())
        expected = f"'{section.kind}[{number}]'"
        if ended:
            _expected("nothing after the variadic rest", section.text, section.line)
        if not entry or int(entry["first"]) != number:
            _expected(f"{expected} and a name", section.text, section.line)
        last = int(entry["last"] or number)
        if entry["last"] and last <= number:
            _expected(f"'{section.kind}[{number}-{number + 1}]' or more", section.text, section.line)
        if entry["name"] in names:
            _expected("a name that is not taken", entry["name"], section.line)
        names.add(entry["name"])
        ended = entry["rest"] is not None
        yield section, entry, 0 if ended else last - number + 1
        number = last + 1


def _keys(sections: list[_HeaderSection]) -> tuple[tuple[str, int], ...]:
    keys: list[tuple[str, int]] = []
    for _, entry, count in _numbered(sections):
        keys.append((entry["name"], count))
    return tuple(keys)


def _arguments(sections: list[_HeaderSection]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    call: tuple[str, ...] = ()
    arguments: list[str] = []
    rest: str | None = None
    for section, entry, count in _numbered(sections):
        name = entry["name"]
        if entry["last"]:
            call = _call(section, entry, count)
            continue
        if not count:
            rest = name
        else:
            arguments.append(name)
        if name in call:
            _expected("a name that is not taken", name, section.line)
        if name == "run_id" and entry["first"] != "1":
            _expected("'run_id' as 'ARGV[1]', where the transport puts it", section.text, section.line)
    return call, tuple(arguments), rest


def _call(section: _HeaderSection, entry: re.Match[str], count: int) -> tuple[str, ...]:
    """Return the names under ``ARGV[1-6] call``, the only range of arguments."""
    names = tuple(name.strip() for name in (entry["text"] or "").split(","))
    if entry["name"] != "call" or entry["first"] != "1":
        _expected("a range of ARGV only as 'ARGV[1-…] call'", section.text, section.line)
    if len(set(names)) != count or len(names) != count or not all(re.fullmatch(NAME, name) for name in names):
        _expected(f"{count} different names, separated by commas, after 'call'", section.text, section.line)
    if "run_id" in names[1:]:
        _expected("'run_id' as 'ARGV[1]', where the transport puts it", section.text, section.line)
    return names


def _codes(section: _HeaderSection) -> tuple[str, ...]:
    text = section.text.strip()
    if text == "none":
        return ()
    codes = tuple(code.strip() for code in re.sub(r"\([^()]*\)", "", text).split(","))
    wrong = [code for code in codes if not re.fullmatch(r"call|[A-Z][A-Z0-9_]*", code)]
    if wrong or len(set(codes)) != len(codes):
        _expected("'none', or different upper case codes or 'call', separated by commas", text, section.line)
    return codes


def _facts(sections: list[_HeaderSection]) -> Mapping[str, Fact]:
    found: dict[str, Fact] = {}
    for section in sections:
        for text in section.text.split(","):
            fact = _FACT.fullmatch(" ".join(text.split()))
            if fact is None or fact["name"] in found:
                _expected(f"different facts of {', '.join(_FACTS)}, separated by commas", text.strip(), section.line)
            found[fact["name"]] = Fact(fact["argument"] is None, fact["argument"], fact["value"] or "")
    return found
