"""The assembled Lua: one library of all operations, and the facts in their headers.

Assembling takes a tenth of a second, so it is not done in every process. ``python -m tools.assemble`` writes the result
into ``lua/assembled.json``, from where the wheel and the sdist take it. ``make`` does this in a checkout.

The file names the hash of all files that it was made from: the Lua files, and the modules of this folder. A process
computes the same hash. If it is another one, or if there is no file, the process assembles the Lua files itself. So a
change is never ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = [
    "ASSEMBLED",
    "NEVER_HOLDS",
    "Assembled",
    "Fact",
    "ScriptFacts",
    "as_json",
    "assembled",
    "at_limit_name",
    "from_json",
    "sources_hash",
]

_ROOM: Final = Path(__file__).parent
_LUA: Final = _ROOM.parent / "lua"
ASSEMBLED: Final = _LUA / "assembled.json"


class Fact(NamedTuple):
    """A fact of a script: whether it holds for all its calls, for none, or for those with a value of one argument."""

    always: bool
    argument: str | None = None
    value: str = ""

    def holds(self, arguments: Mapping[str, object]) -> bool:
        """Return whether the fact holds for a call with these arguments, by name."""
        return self.always or (self.argument is not None and str(arguments.get(self.argument)) == self.value)


NEVER_HOLDS: Final = Fact(always=False)


class ScriptFacts(NamedTuple):
    """The facts of a script that its requests need."""

    flags: tuple[str, ...]
    takes_run_id: bool
    repeatable: Fact
    freeing: Fact
    stated: Mapping[str, Fact]
    """All facts that its header states."""


class Assembled(NamedTuple):
    """The library of all operations, and their facts."""

    made_from: str
    """The hash of all files that it was made from."""
    scripts: Mapping[str, ScriptFacts]
    steps: Mapping[str, Mapping[str, Fact]]
    """The facts of the operations of a transaction that have no script."""
    library_name: str
    library_source: str


@cache
def assembled() -> Assembled:
    """Return the assembled Lua: from its file if that is up to date, and otherwise from the Lua files."""
    made_from = sources_hash()
    try:
        found = from_json(ASSEMBLED.read_bytes())
    except Exception:  # noqa: BLE001  # whatever is wrong with the file, it is not the present one
        found = None
    if found is not None and found.made_from == made_from:
        return found
    from sbredis.engine._lua_files import assemble

    return assemble(made_from)


def as_json(value: Assembled) -> bytes:
    """Return the text of the file."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(text: bytes) -> Assembled:
    """Return what a text of :func:`as_json` holds. Raises ``ValueError`` or ``TypeError`` for most other texts."""
    made_from, scripts, steps, name, source = json.loads(text)
    return Assembled(
        made_from,
        {each: _script_facts(*facts) for each, facts in scripts.items()},
        {each: _stated(facts) for each, facts in steps.items()},
        name,
        source,
    )


def _script_facts(flags: Any, takes_run_id: Any, repeatable: Any, freeing: Any, stated: Any) -> ScriptFacts:
    return ScriptFacts(tuple(flags), takes_run_id, Fact(*repeatable), Fact(*freeing), _stated(stated))


def _stated(facts: Mapping[str, Any]) -> Mapping[str, Fact]:
    return {name: Fact(*fact) for name, fact in facts.items()}


def at_limit_name(name: str) -> str:
    """Return the name of the function that is the second form of an operation, for a full server."""
    return f"{name}_at_limit"


def sources_hash() -> str:
    """Return the hash of all files that the Lua is assembled from; an empty text if they are in a zip file."""
    found = sha1(usedforsecurity=False)
    try:
        for path in (*_files_in(str(_ROOM), ".py"), *_files_in(str(_LUA), ".lua")):
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- a path object for each file takes twice the time
                text = file.read()
            found.update(b"%b\0%d\0%b" % (os.path.basename(path).encode(), len(text), text))  # noqa: PTH119 -- as above
    except OSError:
        return ""
    return found.hexdigest()


def _files_in(folder: str, suffix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.endswith(suffix):
            yield entry.path
        elif entry.is_dir():
            yield from _files_in(entry.path, suffix)
