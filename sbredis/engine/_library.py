"""Builds one library of server functions from all operations: the same Lua files as the single scripts. Pure.

A call of a single script creates each fragment of the script again. In a library, the server creates each fragment
once, when it loads the library, and each operation is a function of it.

The hash of its text is in the name of a library, ``sb_HASH``, and in the name of each function, ``sb_HASH_NAME``. So
releases with different Lua can use one server side by side.

A fragment that several operations use is a local of the whole library. A fragment that one operation uses is in a block
with this operation, because Lua permits only 200 locals at a time. A function can use only 60 locals of the chunk
around it. If a limit is exceeded, :func:`library` says what to divide. The server would only refuse the text.

What Lua keeps between calls is kept for all calls. So constants are never changed, and no fragment keeps anything of a
call, with one exception. A fragment with the line ``-- @remember NUMBER`` is a function of one text without effects,
and the library remembers its results for this number of texts. It remembers a result only when it is complete, it
forgets all of them when there are more, and it does not remember those of long texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha1
from typing import Final

from sbredis.engine._expansion import ClosedOperation, Read, ScriptFormatError, closed
from sbredis.transport import Library

__all__ = ["LIBRARY_NAME", "MOST_LOCALS", "MOST_UPVALUES", "library"]

MOST_LOCALS: Final = 200
"""The most locals that Lua permits in a function or a chunk at one time."""
MOST_UPVALUES: Final = 60
"""The most locals around a function that Lua permits the function to use."""

LIBRARY_NAME = re.compile(r"sb_[0-9a-f]{16}")
"""The names of the libraries of all releases."""
_NAME = "sb_HASH"
_REMEMBERED: Final = """\
local function remembered(anew, most)
  local known, count = {}, 0
  return function(text)
    local found = known[text]
    if found == nil then
      found = anew(text)
      if found ~= nil and #text <= 1024 then
        if count >= most then
          known, count = {}, 0
        end
        known[text], count = found, count + 1
      end
    end
    return found
  end
end
"""


def library(operations: Iterable[str], read: Read, second_forms: Mapping[str, str]) -> Library:
    """Return the library of these operations. Raises :class:`ScriptFormatError` if Lua could not load it.

    ``read`` returns the text of a file, as for :func:`~sbredis.engine._expansion.expand`. ``second_forms`` has the name
    of a second function for some operations, which the server also runs when its memory is full.
    """
    all_closed = {name: closed(name, read) for name in operations}
    users = Counter(fragment for operation in all_closed.values() for fragment in operation.fragments)
    shared: dict[str, None] = {}
    for operation in all_closed.values():
        shared.update(dict.fromkeys(name for name in operation.fragments if users[name] > 1))
    lines = [f"#!lua name={_NAME}", *_REMEMBERED.splitlines()]
    count = 1
    written: set[str] = set()

    def write(operation: ClosedOperation, names: Iterable[str]) -> int:
        locals_made = 0
        for name in names:
            if name not in written:
                written.add(name)
                fragment = operation.fragments[name]
                _check_upvalues(f"includes/{name}", (*fragment.uses, *fragment.inside))
                lines.extend((f"-- includes/{name}", *fragment.code))
                locals_made += 1
                if fragment.remembers is not None:
                    lines.append(f"local {name} = remembered({name}, {fragment.remembers})")
                    locals_made += 1
        return locals_made

    for operation in all_closed.values():
        count += write(operation, (name for name in operation.fragments if name in shared))
    _check_locals("fragments of several operations", count)
    for name, operation in all_closed.items():
        lines.append("do")
        own = write(operation, (fragment for fragment in operation.fragments if fragment not in shared))
        _check_locals(name, count + own + 1)
        _check_upvalues(name, operation.uses)
        lines += [f"-- {name}.lua", "local run = function(KEYS, ARGV)", *operation.code, "end"]
        lines.append(_registered(name, operation.flags))
        if name in second_forms:
            lines.append(_registered(second_forms[name], (*operation.flags, "allow-oom")))
        lines.append("end")
    text = "\n".join(lines) + "\n"
    name = f"sb_{sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]}"
    return Library(name, text.replace(_NAME, name), frozenset((*all_closed, *second_forms.values())))


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
