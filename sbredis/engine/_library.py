"""Builds one library of server functions from all operations: the same Lua files as the single scripts. Pure.

A call of a single script creates each fragment of the script again. In a library, the server creates each fragment
once, when it loads the library, and each operation is a function of it.

The hash of its text is in the name of a library, ``sb_HASH``, and in the name of each function, ``sb_HASH_NAME``. So
releases with different Lua can use one server side by side.

Lua permits only 200 locals at a time, so a fragment is in the smallest block around all operations that use it. The
operations on a partition, which begin with the fragment ``begin``, are one block, and all other operations are another.
Inside it, those of reserved ranges, which use the fragment ``parse_pin``, are a block too. Each operation is a block of
its own, and so is a function with the functions that no other fragment and no operation uses. A function can use only
60 locals of the chunk around it. If a limit is exceeded, :func:`library` says what to divide. The server would only
refuse the text.

What Lua keeps between calls is kept for all calls. So constants are never changed, and no fragment keeps anything of a
call, with one exception: the results of a fragment with the line ``-- @remember NUMBER``, which is a function without
effects (see :mod:`sbredis.engine._expansion`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha1
from typing import Final

from sbredis.engine._expansion import (
    FOUND_AGAIN,
    ClosedOperation,
    LuaFile,
    Read,
    ScriptFormatError,
    closed,
    remembering,
)
from sbredis.transport import Library

__all__ = ["LIBRARY_NAME", "MOST_LOCALS", "MOST_UPVALUES", "library"]

MOST_LOCALS: Final = 200
"""The most locals that Lua permits in a function or a chunk at one time."""
MOST_UPVALUES: Final = 60
"""The most locals around a function that Lua permits the function to use."""

LIBRARY_NAME = re.compile(r"sb_[0-9a-f]{16}")
"""The names of the libraries of all releases."""
_NAME = "sb_HASH"
_FAMILY = "begin"
"""The fragment by which the operations on a partition are known."""
_GROUP: Final = "parse_pin"
"""The fragment by which the operations on reserved ranges are known."""
_REMEMBERED: Final = f"""\
local remembered
do
  local waiting = {{}}
  function remembered(anew, most)
    if not anew then
      for known, filled in pairs(waiting) do
        setmetatable(known, filled)
      end
      remembered = nil
      return
    end
    local known, count = {{}}, 0
    waiting[known] = {{ __index = {FOUND_AGAIN} }}
    return known
  end
end"""
"""The function that makes the table of a fragment that remembers. A library that is being loaded has no
``setmetatable``, so the first call of an operation gives the tables their metatables.
"""
_REMEMBER = "if remembered then remembered() end"


def library(operations: Iterable[str], read: Read, second_forms: Mapping[str, str]) -> Library:
    """Return the library of these operations. Raises :class:`ScriptFormatError` if Lua could not load it.

    ``read`` returns the text of a file, as for :func:`~sbredis.engine._expansion.expand`. ``second_forms`` has the name
    of a second function for some operations, which the server also runs when its memory is full.
    """
    all_closed = {name: closed(name, read) for name in operations}
    families = _divided(all_closed, _FAMILY)
    needs = [{name for operation in family.values() for name in operation.fragments} for family in families]
    common = needs[0] & needs[1] if len(needs) > 1 else set[str]()
    writer = _LibraryWriter(second_forms, _parts(all_closed))
    count = 1
    for operation in all_closed.values():
        count += writer.write(operation, common)
    for family in families:
        users = Counter(fragment for operation in family.values() for fragment in operation.fragments)
        shared = {name for name in users if users[name] > 1}
        groups = _divided(family, _GROUP)
        own = [{name for name in shared - common if _only(name, group, users)} for group in groups]
        if len(groups) == 1:
            own = [set[str]()]
        writer.lines.append("do")
        of_family = count + sum(writer.write(each, shared.difference(*own)) for each in family.values())
        _check_locals("fragments of several operations", of_family)
        for group, of_group in zip(groups, own, strict=True):
            writer.write_group(group, of_group, of_family)
        writer.lines.append("end")
    text = "\n".join(writer.lines) + "\n"
    name = f"sb_{sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]}"
    return Library(name, text.replace(_NAME, name), frozenset((*all_closed, *second_forms.values())))


class _LibraryWriter:
    """Writes fragments and operations, each fragment once."""

    def __init__(self, second_forms: Mapping[str, str], parts: Mapping[str, Sequence[str]]) -> None:
        self.lines = [f"#!lua name={_NAME}", *_REMEMBERED.splitlines()]
        self._second_forms = second_forms
        self._parts = parts
        self._deepest = max(map(self._locals_around, parts), default=0)
        self._written = {part for names in parts.values() for part in names}

    def write(self, operation: ClosedOperation, names: AbstractSet[str]) -> int:
        """Write those fragments of an operation that have these names. Return how many locals this makes."""
        new = [name for name in operation.fragments if name in names and name not in self._written]
        for name in new:
            self._written.add(name)
            self._write_fragment(name, operation.fragments)
        return len(new)

    def _locals_around(self, name: str) -> int:
        """Return how many locals there are at one time in the block of a fragment."""
        parts = self._parts.get(name, ())
        return len(parts) + max(map(self._locals_around, parts), default=0)

    def _write_fragment(self, name: str, fragments: Mapping[str, LuaFile]) -> None:
        """Write a fragment. Its parts are written before it, in a block around both."""
        fragment, parts, (first, *rest) = fragments[name], self._parts.get(name, ()), fragments[name].code
        _check_upvalues(f"includes/{name}", (*fragment.uses, *fragment.inside))
        if parts:
            self.lines += [f"local {name}", "do"]
            for part in parts:
                self._write_fragment(part, fragments)
            first = first.removeprefix("local ")
        self.lines += [f"-- includes/{name}", first, *rest, *remembering(name, fragment)]
        if parts:
            self.lines.append("end")

    def write_group(self, group: Mapping[str, ClosedOperation], shared: AbstractSet[str], count: int) -> None:
        """Write operations, inside a block for the fragments that only they share. ``count`` locals are there."""
        if shared:
            self.lines.append("do")
            count += sum(self.write(operation, shared) for operation in group.values())
        for name, operation in group.items():
            self.lines.append("do")
            own = self.write(operation, operation.fragments.keys())
            _check_locals(name, count + own + 1 + self._deepest)
            remembers = any(fragment.remembers is not None for fragment in operation.fragments.values())
            begun = [_REMEMBER] if remembers else []
            _check_upvalues(name, (*operation.uses, *begun))
            self.lines += [f"-- {name}.lua", "local run = function(KEYS, ARGV)", *begun, *operation.code, "end"]
            self.lines.append(_registered(name, operation.flags))
            if name in self._second_forms:
                self.lines.append(_registered(self._second_forms[name], (*operation.flags, "allow-oom")))
            self.lines.append("end")
        if shared:
            self.lines.append("end")


def _parts(operations: Mapping[str, ClosedOperation]) -> dict[str, list[str]]:
    """Return the parts of fragments: the functions that only one fragment uses, and nothing else does."""
    fragments = {name: each for operation in operations.values() for name, each in operation.fragments.items()}
    of_operations = {used for operation in operations.values() for used in operation.uses}
    users: dict[str, set[str]] = {name: {""} if name in of_operations else set() for name in fragments}
    for name, each in fragments.items():
        for used in (*each.uses, *each.inside):
            users[used].add(name)
    parts: dict[str, list[str]] = {}
    for name, each in fragments.items():
        (user, *others) = users[name]
        if user and not others and all(map(_is_function, (each, fragments[user]))):
            parts.setdefault(user, []).append(name)
    return parts


def _is_function(fragment: LuaFile) -> bool:
    return fragment.remembers is None and fragment.code[0].startswith("local function ")


def _divided(operations: Mapping[str, ClosedOperation], marker: str) -> list[dict[str, ClosedOperation]]:
    """Return the operations that use a fragment, and those that do not."""
    parts = [
        {name: operation for name, operation in operations.items() if (marker in operation.fragments) is belongs}
        for belongs in (True, False)
    ]
    return [part for part in parts if part]


def _only(fragment: str, group: Mapping[str, ClosedOperation], users: Mapping[str, int]) -> bool:
    """Return whether only operations of a group use a fragment."""
    return sum(fragment in operation.fragments for operation in group.values()) == users[fragment]


def _registered(name: str, flags: tuple[str, ...]) -> str:
    said = f", flags = {{ {', '.join(repr(flag) for flag in flags)} }}" if flags else ""
    return f"redis.register_function({{ function_name = '{_NAME}_{name}', callback = run{said} }})"


def _check_locals(what: str, count: int) -> None:
    if count > MOST_LOCALS:
        raise ScriptFormatError(
            f"{what}: {count} locals of the library at one time, and Lua permits {MOST_LOCALS}; "
            "join fragments that are always used together"
        )


def _check_upvalues(what: str, uses: Iterable[str]) -> None:
    count = len(set(uses))
    if count > MOST_UPVALUES:
        raise ScriptFormatError(
            f"{what}: it uses {count} fragments, and Lua permits {MOST_UPVALUES} for a function; "
            "divide it into fragments"
        )
