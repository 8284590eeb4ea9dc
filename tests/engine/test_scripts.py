"""The loader assembles Lua files and reads their headers as contracts; the real files follow the rules of both."""

from __future__ import annotations

import graphlib
import importlib
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine._contracts import Contract, contract, refusals
from sbredis.engine._expansion import ScriptFormatError, _taken_apart, expand
from sbredis.engine._lua_constants import GENERATED
from sbredis.engine._lua_files import _folders, opened, positioned, read_source
from sbredis.engine._scripts import load, operations
from sbredis.engine._settings import SETTINGS
from sbredis.engine._state import FIELD_LISTS
from sbredis.transport import Script
from tests.offenders import for_each
from tools.repository import ROOT

# -- expansion ---------------------------------------------------------------------------------------------------------

SEND = """#!lua flags=allow-oom
-- Sends.
-- @use begin
-- @use finish

local p = begin(KEYS, ARGV)  -- kept: it stands behind code
  -- dropped
return finish(p)
"""
BEGIN = "-- Begins.\n-- @use clock\nlocal function begin(keys)\n  return { clock(), keys }\nend\n"
CLOCK = "-- The clock.\nlocal function clock()\n  return redis.call('TIME')\nend\n"
FINISH = "-- Ends.\n-- @use clock\nlocal function finish(p)\n  return clock() and p\nend\n"
FILES = {"send": SEND, "includes/begin": BEGIN, "includes/clock": CLOCK, "includes/finish": FINISH}


def test_each_fragment_comes_once_before_the_code_that_uses_it() -> None:
    assert expand("send", FILES.get) == (
        "#!lua flags=allow-oom\n"
        "-- includes/clock\nlocal function clock()\n  return redis.call('TIME')\nend\n"
        "-- includes/begin\nlocal function begin(keys)\n  return { clock(), keys }\nend\n"
        "-- includes/finish\nlocal function finish(p)\n  return clock() and p\nend\n"
        "-- send.lua\nlocal p = begin(KEYS, ARGV)  -- kept: it stands behind code\nreturn finish(p)\n"
    )


def test_an_operation_needs_no_fragment_and_may_have_the_same_name_as_a_fragment() -> None:
    assert expand("o", {"o": "#!lua\nreturn 1\n"}.get) == "#!lua\n-- o.lua\nreturn 1\n"
    same = {"o": "#!lua\n-- @use o\nreturn o()", "includes/o": "local function o() return 1 end"}
    assert expand("o", same.get) == ("#!lua\n-- includes/o\nlocal function o() return 1 end\n-- o.lua\nreturn o()\n")


@pytest.mark.parametrize(
    "code",
    [
        "local s = [[\n-- not a comment\n\n-- @use neither\n]]",
        "local s = [==[ ]] \n-- not a comment ]=]\n\n]==]",
        "--[[ a long comment\n\n-- within it\n]] local s = 1",
        "--[=[\n-- within\n]=]",
        "local s = 'a\\\n-- not a comment\\\n'",
        "local s = '[[' .. \"--[[\" .. t[u[1]]",
        "local s = 1 -- a comment with [[ in it",
        "local s = '\\'' .. \"\\\"[[\" -- '",
    ],
)
def test_strings_and_long_comments_are_not_changed(code: str) -> None:
    # The comment and the blank line after it must be removed. A parser that misses the end of a string keeps them.
    assert expand("o", {"o": f"#!lua\n-- header\n\n{code}\n\n-- it's dropped\nreturn 1\n"}.get) == (
        f"#!lua\n-- o.lua\n{code}\nreturn 1\n"
    )


@pytest.mark.parametrize(
    "fragment",
    [
        "local f = 1",
        "local F = 281474976710656",
        "local F = {\n  a = 1,\n}",
        "local function f(a) return a end",
        "-- What it is for.\n\nlocal function f(\n  a,\n  b\n)\n  local c = a\n  return c\nend",
        "local f = {\n  text = [[\nlocal other = 1\n]],\n}",
    ],
)
def test_a_fragment_defines_one_local_of_its_name(fragment: str) -> None:
    assert "-- includes/f\n" in expand("o", {"o": "#!lua\n-- @use f\nreturn f", "includes/f": fragment}.get)


NOT_A_DEFINITION = "o -> f, line {}: expected 'local function f(', 'local f =' or 'local F =' as the first line of code"
ONE_LOCAL = "o -> f, line {}: a fragment defines one local with its file's name, and nothing else; found "
NOT_A_USE = "o, line {}: expected '-- @use NAME …' or '-- @remember NUMBER', found "


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "o: there is no o.lua"),
        ({"o": ""}, "o: an operation begins with a line '#!lua' or '#!lua flags=…'"),
        ({"o": "return 1"}, "o: an operation begins with a line"),
        ({"o": "\n#!lua\nreturn 1"}, "o: an operation begins with a line"),
        ({"o": "#!lua \nreturn 1"}, "o, line 1: expected '#!lua' or '#!lua flags=…', found '#!lua '"),
        ({"o": "#!lua flags=\nreturn 1"}, "o, line 1: expected '#!lua' or '#!lua flags=…'"),
        ({"o": "#!lua name=x\nreturn 1"}, "o, line 1: expected '#!lua' or '#!lua flags=…'"),
        ({"o": "#!/usr/bin/lua\nreturn 1"}, "o, line 1: expected '#!lua' or '#!lua flags=…'"),
        ({"o": "#!lua\n-- @use g"}, "o -> g: there is no includes/g.lua"),
        ({"o": "#!lua\n-- @use f", "includes/f": "-- @use g\nlocal f = 1"}, "o -> f -> g: there is no includes/g.lua"),
        ({"o": "#!lua\n-- @use f\n-- @use f"}, "o, line 3: '@use f' occurs twice"),
        ({"o": "#!lua\n-- @use f\n\nlocal x\n-- @use g"}, "o, line 5: '@use g' comes after the first line of code"),
        ({"o": "#!lua\n-- @include f"}, NOT_A_USE.format(2) + "'-- @include f'"),
        ({"o": "#!lua\n-- @use"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\n-- @use f f"}, "o, line 2: '@use f' occurs twice"),
        ({"o": "#!lua\n-- @use f g\n-- @use h g inside"}, "o, line 3: '@use g' occurs twice"),
        ({"o": "#!lua\n-- @use f, g"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\n-- @use f  g"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\n-- @use calls/f"}, NOT_A_USE.format(2)),
        (
            {"o": "#!lua\n-- @use f inside\nreturn 1"},
            "o: '@use … inside' and '@remember' are for fragments only, because an operation is not a function",
        ),
        ({"o": "#!lua\n-- @use f.lua"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\n  -- @use f"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\n--@use f"}, NOT_A_USE.format(2)),
        ({"o": "#!lua\nlocal x\n---@param x"}, NOT_A_USE.format(3)),
        ({"o": "#!lua\n-- @use f", "includes/f": "#!lua\nlocal f = 1"}, "o -> f, line 1: a fragment has no shebang"),
        ({"o": "#!lua\n-- @use f", "includes/f": "-- to do\n"}, "o -> f: expected 'local function f(', 'local f ='"),
        ({"o": "#!lua\n-- @use f", "includes/f": "-- g\nlocal g = 1"}, NOT_A_DEFINITION.format(2)),
        ({"o": "#!lua\n-- @use f", "includes/f": "local f, g = 1"}, NOT_A_DEFINITION.format(1)),
        ({"o": "#!lua\n-- @use f", "includes/f": "local fg = 1"}, NOT_A_DEFINITION.format(1)),
        ({"o": "#!lua\n-- @use f", "includes/f": "function f()\nend"}, NOT_A_DEFINITION.format(1)),
        ({"o": "#!lua\n-- @use f", "includes/f": "local function F()\nend"}, NOT_A_DEFINITION.format(1)),
        ({"o": "#!lua\n-- @use f", "includes/f": "  local g\nlocal f = 1"}, NOT_A_DEFINITION.format(2)),
        ({"o": "#!lua\n-- @use f", "includes/f": "local f = 1\nlocal g = 1"}, ONE_LOCAL.format(2) + "'local g = 1'"),
        ({"o": "#!lua\n-- @use f", "includes/f": "local f = {}\nf.a = 1"}, ONE_LOCAL.format(2)),
        ({"o": "#!lua\n-- @use f", "includes/f": "local function f()\nend\nreturn f"}, ONE_LOCAL.format(3)),
        (
            {"o": "#!lua\n-- @use f", "includes/f": "-- KEYS\nlocal function f()\n  return 'KEYS' .. #ARGV\nend"},
            "o -> f: a fragment gets the keys and arguments of a call from its caller; found ARGV",
        ),
        ({"o": "#!lua\n-- @use f", "includes/f": "-- @use f\nlocal f = 1"}, "o -> f -> f: a cycle"),
        (
            {
                "o": "#!lua\n-- @use a\n-- @use f",
                "includes/a": "local a = 1",
                "includes/f": "-- @use a\n-- @use g\nlocal f = 1",
                "includes/g": "-- @use f\nlocal g = 1",
            },
            "o -> f -> g -> f: a cycle",
        ),
    ],
)
def test_the_error_for_a_malformed_file_names_its_include_chain(files: dict[str, str], text: str) -> None:
    with pytest.raises(ScriptFormatError, match="^" + re.escape(text)):
        expand("o", files.get)


def test_one_line_can_name_several_fragments() -> None:
    """The fragments come in the order in which the line names them; ``inside`` applies to its whole line."""
    fragments = {f"includes/{name}": f"local {name} = 1" for name in "abcd"}
    uses, one_by_one = "-- @use b a\n-- @use d c inside\n", "-- @use b\n-- @use d inside\n-- @use a\n-- @use c inside\n"
    files = fragments | {
        "o": "#!lua\n-- @use f\nreturn f()",
        "includes/f": f"{uses}local function f()\n  return a\nend",
    }
    assert re.findall(r"local (?:function )?(\w)", expand("o", files.get)) == ["b", "a", "f", "d", "c"]
    same = files | {"includes/f": files["includes/f"].replace(uses, one_by_one)}
    assert expand("o", files.get) == expand("o", same.get)


NAMES = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), unique=True, max_size=9)


@st.composite
def graphs(draw: st.DrawFn, *, cycles: bool) -> tuple[list[str], dict[str, list[str]]]:
    """Draw the fragments that an operation uses, and the fragments that each fragment uses."""
    names = draw(NAMES)

    def some(choice: list[str]) -> list[str]:
        return draw(st.lists(st.sampled_from(choice), unique=True)) if choice else []

    return some(names), {name: some(names if cycles else names[:i]) for i, name in enumerate(names)}


def written(uses: list[str], graph: dict[str, list[str]]) -> dict[str, str]:
    """Return the files of such a graph."""
    lines = {name: "".join(f"-- @use {used}\n" for used in graph[name]) for name in graph}
    fragments = {f"includes/{name}": f"{above}local function {name}()\nend\n" for name, above in lines.items()}
    return fragments | {"OP": "#!lua\n" + "".join(f"-- @use {used}\n" for used in uses) + "return 1\n"}


def reached(uses: list[str], graph: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(uses)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += graph[name]
    return found


@given(graphs(cycles=False))
def test_each_needed_fragment_comes_once_after_the_fragments_that_it_uses(
    graph: tuple[list[str], dict[str, list[str]]],
) -> None:
    source = expand("OP", written(*graph).get)
    order = re.findall(r"^-- includes/(\w+)\nlocal function \1\(\)\nend$", source, re.MULTILINE)
    assert sorted(order) == sorted(reached(*graph))
    assert [(name, used) for name in order for used in graph[1][name] if order.index(used) > order.index(name)] == []
    assert source.startswith("#!lua\n")
    assert source.endswith("-- OP.lua\nreturn 1\n")
    assert source.count("\n") == 3 + 3 * len(order)


@given(graphs(cycles=True))
def test_an_operation_is_refused_if_and_only_if_its_fragments_form_a_cycle(
    graph: tuple[list[str], dict[str, list[str]]],
) -> None:
    needed = reached(*graph)
    try:
        graphlib.TopologicalSorter({name: graph[1][name] for name in needed}).prepare()
    except graphlib.CycleError:
        with pytest.raises(ScriptFormatError, match=r"^OP( -> \w+)* -> (\w+)( -> \w+)* -> \2: a cycle$"):
            expand("OP", written(*graph).get)
    else:
        assert expand("OP", written(*graph).get).count("-- includes/") == len(needed)


# -- the contract ------------------------------------------------------------------------------------------------------

RECEIVE = """#!lua flags=allow-oom,no-cluster
-- Hands out messages
-- and locks them.
--
-- Nothing else.
--
-- KEYS[1-27] partition       in the order of includes/partition.lua
-- KEYS[28]   extra
-- ARGV[1-6]  call            run_id, incarnation, version,
--                            lane, number, now
-- ARGV[7]    side            "" or "d"
-- ARGV[8]    wanted          how many
--                            at most
-- ARGV[9...] groups          free text,
--     ARGV[10] x             which goes on
--
-- Result: { more, ... } of free text,
--   which goes on
-- Refusals: call, DISABLED (receiving, so to say), QUOTA,
-- LOCK_LOST (over
-- two lines)
-- @use begin
-- This is about the code.
local p = begin(KEYS, ARGV)
"""

HEAD = "#!lua\n-- Does.\n"
TAIL = "-- Result: 1\n-- Refusals: none\n"


def test_a_header_is_read_as_a_contract() -> None:
    read = contract(RECEIVE)
    assert read == Contract(
        purpose="Hands out messages\nand locks them.\n\nNothing else.",
        flags=("allow-oom", "no-cluster"),
        keys=(("partition", 27), ("extra", 1)),
        call=("run_id", "incarnation", "version", "lane", "number", "now"),
        arguments=("side", "wanted"),
        rest="groups",
        result="{ more, ... } of free text,\n  which goes on",
        refusals=("call", "DISABLED", "QUOTA", "LOCK_LOST"),
    )
    assert read.takes_run_id
    assert refusals(RECEIVE) == read.refusals


@pytest.mark.parametrize(
    ("body", "expected", "takes_run_id"),
    [
        ("", ((), (), (), None), False),
        ("-- KEYS[1] a\n", ((("a", 1),), (), (), None), False),
        ("-- KEYS[1] a  text\n--    more\n-- KEYS[2-3] b\n--\n", ((("a", 1), ("b", 2)), (), (), None), False),
        ("-- ARGV[1] run_id\n", ((), (), ("run_id",), None), True),
        ("-- ARGV[1] a\n-- ARGV[2] b\n", ((), (), ("a", "b"), None), False),
        ("-- ARGV[1...] all\n", ((), (), (), "all"), False),
        ("-- ARGV[1-2] call  run_id, b\n", ((), ("run_id", "b"), (), None), True),
        ("-- ARGV[1-2] call  a, b\n-- ARGV[3...] c\n", ((), ("a", "b"), (), "c"), False),
        ("-- @use early\n-- KEYS[1] a\n-- @use later\n-- ARGV[1] a\n", ((("a", 1),), (), ("a",), None), False),
    ],
)
def test_keys_and_arguments_are_read_in_order(
    body: str,
    expected: tuple[tuple[tuple[str, int], ...], tuple[str, ...], tuple[str, ...], str | None],
    takes_run_id: bool,
) -> None:
    read = contract(HEAD + body + TAIL)
    assert (read.keys, read.call, read.arguments, read.rest) == expected
    assert read.takes_run_id is takes_run_id


CODES = "expected 'none', or different upper case codes or 'call', separated by commas"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("", "line 1: expected '#!lua' or '#!lua flags=…', found ''"),
        ("-- Does.\n" + TAIL, "line 1: expected '#!lua'"),
        ("#!lua\n" + TAIL, "the header does not state its purpose"),
        (HEAD, "the header does not state 'Result:'"),
        (HEAD + "-- Refusals: none\n", "the header does not state 'Result:'"),
        (HEAD + "-- Result: 1\n", "the header does not state 'Refusals:'"),
        (HEAD + "-- Result: 1\n\n-- Refusals: none\n", "the header does not state 'Refusals:'"),
        (HEAD + "-- Result: 1\n-- Refusals:\n", "the header does not state 'Refusals:'"),
        (HEAD + "-- KEYS[2] a\n" + TAIL, "line 3: expected 'KEYS[1]' and a name, found 'KEYS[2] a'"),
        (HEAD + "-- KEYS[0] a\n" + TAIL, "line 3: expected 'KEYS[1]' and a name"),
        (HEAD + "-- KEYS[1] a\n-- KEYS[3] b\n" + TAIL, "line 4: expected 'KEYS[2]' and a name, found 'KEYS[3] b'"),
        (HEAD + "-- KEYS[1] a\n-- KEYS[1] b\n" + TAIL, "line 4: expected 'KEYS[2]' and a name"),
        (HEAD + "-- KEYS[1-3] a\n-- KEYS[3] b\n" + TAIL, "line 4: expected 'KEYS[4]' and a name"),
        (HEAD + "-- KEYS[1-1] a\n" + TAIL, "line 3: expected 'KEYS[1-2]' or more"),
        (HEAD + "-- KEYS[1]\n" + TAIL, "line 3: expected 'KEYS[1]' and a name"),
        (HEAD + "-- KEYS[] a\n" + TAIL, "line 3: expected 'KEYS[1]' and a name"),
        (HEAD + "-- KEYS[1], a\n" + TAIL, "line 3: expected 'KEYS[1]' and a name"),
        (HEAD + "-- KEYS[1] a\n-- KEYS[2] a\n" + TAIL, "line 4: expected a name that is not taken, found 'a'"),
        (HEAD + "-- KEYS[1] a\n-- more\n" + TAIL, "line 4: expected an indented line or 'KEYS[…]' or 'ARGV[…]'"),
        (HEAD + "-- KEYS[1] a\n--\n--  more\n" + TAIL, "line 5: expected 'KEYS[…]' or 'ARGV[…]' or 'Result:'"),
        (HEAD + "-- ARGV[1] a\n-- KEYS[1] a\n" + TAIL, "line 4: expected an indented line or 'ARGV[…]' or 'Result:'"),
        (HEAD + "-- ARGV[2] a\n" + TAIL, "line 3: expected 'ARGV[1]' and a name"),
        (HEAD + "-- ARGV[1...] a\n-- ARGV[2] b\n" + TAIL, "line 4: expected nothing after the variadic rest"),
        (HEAD + "-- ARGV[1-2] pair  a, b\n" + TAIL, "line 3: expected a range of ARGV only as 'ARGV[1-…] call'"),
        (HEAD + "-- ARGV[1] x\n-- ARGV[2-3] call  a, b\n" + TAIL, "line 4: expected a range of ARGV only as"),
        (HEAD + "-- ARGV[1-3] call  a, b\n" + TAIL, "line 3: expected 3 different names"),
        (HEAD + "-- ARGV[1-2] call\n" + TAIL, "line 3: expected 2 different names"),
        (HEAD + "-- ARGV[1-2] call  a, a\n" + TAIL, "line 3: expected 2 different names"),
        (HEAD + "-- ARGV[1-2] call  a, b and c\n" + TAIL, "line 3: expected 2 different names"),
        (HEAD + "-- ARGV[1-2] call  a, b\n-- ARGV[3] b\n" + TAIL, "line 4: expected a name that is not taken"),
        (HEAD + "-- ARGV[1-2] call  a, run_id\n" + TAIL, "line 3: expected 'run_id' as 'ARGV[1]'"),
        (HEAD + "-- ARGV[1] a\n-- ARGV[2] run_id\n" + TAIL, "line 4: expected 'run_id' as 'ARGV[1]'"),
        (HEAD + TAIL + "-- Result: 1\n", "line 5: expected 'Facts:', '-- @use NAME …' or the code"),
        (HEAD + TAIL + "-- KEYS[1] a\n", "line 5: expected 'Facts:', '-- @use NAME …' or the code"),
        (HEAD + TAIL + "--\n-- Besides.\n", "line 6: expected 'Facts:', '-- @use NAME …' or the code"),
        (HEAD + "-- Result: 1\n-- Result: 2\n", "line 4: expected 'Refusals:'"),
        (HEAD + "-- Result: 1\n-- ARGV[1] a\n", "line 4: expected 'Refusals:'"),
        (HEAD + "-- Result: 1\n-- Refusals: Quota\n", f"line 4: {CODES}, found 'Quota'"),
        (HEAD + "-- Result: 1\n-- Refusals: QUOTA.\n", f"line 4: {CODES}"),
        (HEAD + "-- Result: 1\n-- Refusals: QUOTA,\n", f"line 4: {CODES}"),
        (HEAD + "-- Result: 1\n-- Refusals: QUOTA GONE\n", f"line 4: {CODES}"),
        (HEAD + "-- Result: 1\n-- Refusals: QUOTA (a\n", f"line 4: {CODES}"),
        (HEAD + "-- Result: 1\n-- Refusals: GONE, GONE\n", f"line 4: {CODES}"),
        (HEAD + "-- Result: 1\n-- Refusals: none, GONE\n", f"line 4: {CODES}"),
    ],
)
def test_the_error_for_a_malformed_header_names_the_line_and_the_expected_form(source: str, text: str) -> None:
    with pytest.raises(ScriptFormatError, match="^" + re.escape(text)):
        contract(source)


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ("local f = 1", ()),
        ("-- What it does.\nlocal f = 1", ()),
        ("-- What it does.\n-- Refusals: none\nlocal f = 1", ()),
        (
            "-- What it does.\n--\n-- Refusals: GONE (a,\n--   b), STALE\n-- @use g\n-- then\nlocal f = 1",
            ("GONE", "STALE"),
        ),
    ],
)
def test_a_fragment_may_list_refusals_as_well(source: str, codes: tuple[str, ...]) -> None:
    assert refusals(source) == codes


# -- the files of the package ------------------------------------------------------------------------------------------

LUA = ROOT / "lua"
PLACES = sorted((LUA / "includes").rglob("*.lua"))
FRAGMENTS = {path.stem: path for path in PLACES}
ALL = [*operations(), *(f"includes/{name}" for name in FRAGMENTS), *GENERATED]

# The globals that a script may use: a server and fakeredis both have them, and reading them raises no error.
KNOWN = {"ARGV", "KEYS", "cjson", "ipairs", "math", "next", "pairs", "redis", "select", "string", "table", "tonumber"}
KNOWN |= {"setmetatable", "tostring", "type", "unpack"}

every_operation = for_each("name", operations())
every_file = for_each("name", ALL)


def text_of(name: str) -> str:
    """Return a file of the checkout, with the code that opens a call; or the text of a generated fragment."""
    if name in GENERATED:
        return GENERATED[name]
    if name.startswith("includes/"):
        return FRAGMENTS[name.removeprefix("includes/")].read_text("utf-8")
    return opened(name, (LUA / f"{name}.lua").read_text("utf-8"))


def read(name: str) -> str | None:
    return positioned(name, text_of(name)) if name in ALL else None


@cache
def uses(name: str) -> tuple[str, ...]:
    file = _taken_apart(text_of(name))
    return file.uses + file.inside


class Compiled:
    """The globals that a chunk reads and writes, in all its functions, and the locals of its top level.

    They are read from the bytecode of Lua 5.1, the Lua of all servers. A search in the text would not be exact.
    """

    GETGLOBAL, SETGLOBAL = 5, 7

    def __init__(self, source: str, name: str) -> None:
        lua: Any = importlib.import_module("lupa.lua51").LuaRuntime(encoding=None)
        without_shebang = Script(name, source).without_shebang().source
        chunk = lua.globals()[b"loadstring"](without_shebang.encode(), f"={name}".encode())
        assert not isinstance(chunk, tuple), chunk[1].decode()
        self._dump: bytes = lua.globals()[b"string"][b"dump"](chunk)
        # Signature, version 5.1, format 0, little endian, and the sizes of int, size_t, instruction and number.
        assert self._dump[:12] == b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00", "not compiled on a 64-bit machine"
        self._at = 12
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.locals = self._function()

    def _take(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._dump, self._at)
        self._at += struct.calcsize(f"<{form}")
        return value

    def _string(self) -> str:
        size = self._take("Q")
        self._at += size
        return self._dump[self._at - size : self._at - 1].decode("latin-1") if size else ""

    def _constant(self) -> Any:
        form = {0: None, 1: "?", 3: "d", 4: ""}[self._take("B")]
        return self._string() if form == "" else self._take(form) if form else None

    def _function(self) -> list[str]:
        self._string()  # the name of the chunk
        self._at += 12  # two line numbers, and the numbers of upvalues, parameters and registers
        code = [self._take("I") for _ in range(self._take("i"))]
        constants = [self._constant() for _ in range(self._take("i"))]
        for instruction in code:
            if instruction & 63 == self.GETGLOBAL:
                self.reads.add(constants[instruction >> 14])
            elif instruction & 63 == self.SETGLOBAL:
                self.writes.add(constants[instruction >> 14])
        for _ in range(self._take("i")):
            self._function()
        for _ in range(self._take("i")):
            self._take("i")  # the line of an instruction
        names: list[str] = []
        for _ in range(self._take("i")):
            names.append(self._string())
            self._at += 8  # the part of the code where the local lives
        for _ in range(self._take("i")):
            self._string()  # the name of an upvalue
        return names


@cache
def compiled(name: str) -> Compiled:
    return Compiled(positioned(name, text_of(name)), name)


def arguments(source: str, start: int) -> list[str]:
    """Return the arguments, as written, of the call whose parenthesis opens before ``start``."""
    depth, found = 0, [""]
    for token in re.finditer(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|.", source[start:], re.DOTALL):
        depth += (token[0] in ("(", "[", "{")) - (token[0] in (")", "]", "}"))
        if depth < 0:
            break
        if token[0] == "," and not depth:
            found.append("")
        else:
            found[-1] += token[0]
    return [argument.strip() for argument in found]


def calls(source: str) -> Iterator[list[str]]:
    return (arguments(source, call.end()) for call in re.finditer(r"\bredis\.p?call\(", source))


def codes_in(source: str) -> set[str]:
    return set(re.findall(r"\b(?:refuse|error_reply)\(\s*['\"]([A-Z][A-Z0-9_]*)", source))


def test_scripts_are_checked_by_their_compiled_form() -> None:
    chunk = Compiled(
        "#!lua\nlocal a = b\nlocal function f(x)\n  c = x .. 'd = e'\n  return g[a], nil, true, 1.5\nend", "x"
    )
    assert (chunk.reads, chunk.writes, chunk.locals) == ({"b", "g"}, {"c"}, ["a", "f"])
    with pytest.raises(AssertionError, match="x:2: '=' expected near 'Lua'"):
        Compiled("#!lua\nno Lua", "x")


def test_the_checks_find_calls_and_their_arguments() -> None:
    source = "local x = redis.call('HSET', p.store[f(1, 2)], \"a,)\", { 1, 2 }) + redis.pcall('TIME')"
    assert list(calls(source)) == [["'HSET'", "p.store[f(1, 2)]", '"a,)"', "{ 1, 2 }"], ["'TIME'"]]


@every_operation
def test_the_header_of_an_operation_is_a_contract(name: str) -> None:
    assert contract(text_of(name)).keys, "an operation without a key cannot be sent to where it belongs"


@pytest.mark.slow
@every_operation
def test_every_operation_can_be_assembled_and_compiled(name: str) -> None:
    source = expand(name, read)
    whole = Compiled(source, name)
    assert whole.writes == set()
    assert whole.reads <= KNOWN
    assert load(name).source == source


@pytest.mark.slow
@for_each("name", [*FRAGMENTS, *(name.removeprefix("includes/") for name in GENERATED)])
def test_a_fragment_defines_one_local_and_is_used(name: str) -> None:
    assert compiled(f"includes/{name}").locals in ([name], [name.upper()])
    assert [user for user in ALL if name in uses(user)] != []


@every_file
def test_a_file_sets_no_global_and_uses_exactly_its_declared_fragments(name: str) -> None:
    """Each file is compiled alone, so the fragments that it uses appear as globals that it reads."""
    chunk = compiled(name)
    assert chunk.writes == set()
    declared = {local for used in uses(name) for local in compiled(f"includes/{used}").locals[:1]}
    assert chunk.reads - KNOWN == declared


@every_file
def test_a_file_neither_contains_nor_builds_key_names(name: str) -> None:
    source = text_of(name)
    assert re.findall(r"\bredis\.p?call\b(?!\()", source) == [], "this test does not see a call under another name"
    with_keys = [call for call in calls(source) if len(call) > 1]
    assert [call for call in with_keys if re.search(r"['\"]|\.\.|\[\[", call[1])] == []


PASSING_ON = {"configure"}
"""Scripts that open another call inside, but do not return the refusals of this inner call."""


VERDICTS = {"begin_bucket": {"NAMESPACE"}, "take": {"DISABLED", "FENCED", "QUOTA", "SESSIONS", "TOOLARGE"}}
"""Refusals of fragments that a script returns as a part of its result, or never gets because it asked before."""


@pytest.mark.slow
@every_operation
def test_an_operation_lists_exactly_the_codes_it_can_answer_with(name: str) -> None:
    listed = set(contract(text_of(name)).refusals)
    if "call" in listed:
        listed = listed - {"call"} | set(refusals(text_of("includes/begin")))
    found = codes_in(expand(name, read))
    if name in PASSING_ON:
        found -= set(refusals(text_of("includes/begin"))) - listed
    assert found - VERDICTS.get(name, set()) == listed


@pytest.mark.slow
@every_operation
def test_an_operation_lists_call_as_a_refusal_if_and_only_if_it_opens_a_call(name: str) -> None:
    begins = "-- includes/begin\n" in expand(name, read) and name not in PASSING_ON
    assert ("call" in contract(text_of(name)).refusals) == begins


def test_the_fragment_that_opens_a_call_lists_its_refusals() -> None:
    alone = {"alone": "#!lua\n-- @use begin\nreturn begin\n"}
    source = expand("alone", lambda name: alone.get(name) or read(name))
    assert set(refusals(text_of("includes/begin"))) == codes_in(source) != set()


def test_each_fragment_has_a_unique_name_and_is_in_the_folder_of_its_subject() -> None:
    assert {path.parent.parent for path in PLACES} == {LUA / "includes"}
    assert sorted(FRAGMENTS) == sorted(path.stem for path in PLACES)
    assert set(FRAGMENTS) & {path.parent.name for path in PLACES} == set(), "a folder has a fragment's name"


def test_no_file_has_the_name_of_a_fragment_that_is_generated() -> None:
    assert GENERATED.keys() & {f"includes/{name}" for name in FRAGMENTS} == set()


def test_every_subject_folder_of_fragments_is_documented() -> None:
    listed = re.findall(r"^\| `(\w+)/` \|", (ROOT / "lua" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == sorted({path.parent.name for path in PLACES})


def test_two_fragments_with_the_same_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("calls", "time"):
        (tmp_path / "lua" / "includes" / folder).mkdir(parents=True)
        (tmp_path / "lua" / "includes" / folder / "begin.lua").write_text("local begin = 1\n")
    monkeypatch.setattr("sbredis.engine._lua_files.files", lambda _: tmp_path)
    _folders.cache_clear()
    read_source.cache_clear()
    with pytest.raises(
        ScriptFormatError, match=r"^both (calls and time|time and calls) in lua/includes have a begin.lua$"
    ):
        read_source("includes/begin")
    assert _folders.cache_info().currsize == 0, "the cache keeps a refused folder"


# -- fields by name ----------------------------------------------------------------------------------------------------


def test_a_list_of_fields_expands_to_names_and_a_field_to_its_position() -> None:
    names = FIELD_LISTS["TARGET"]
    listed = ", ".join(f"'{name}'" for name in names)
    assert positioned("f", "local s = get(key, unpack(TARGET))") == f"local s = get(key, {listed})"
    for position, name in enumerate(names, 1):
        assert positioned("f", f"return s[TARGET.{name}]") == f"return s[{position}]"


def test_settings_expand_to_fields_of_the_declared_types() -> None:
    text = positioned("f", "return { WORDS.settings(w), now = 1 }")
    position = {name: place for place, name in enumerate(FIELD_LISTS["WORDS"], 1)}
    assert f"status = w[{position['status']}], " in text
    assert f"lock = w[{position['lock']}] + 0, " in text
    assert f"window = w[{position['window']}] ~= '' and w[{position['window']}] + 0 or nil, " in text
    assert f"dead = w[{position['dead']}] == '1', " in text
    assert "quota" not in text
    assert text.endswith(", now = 1 }")


def test_the_words_of_a_field_expand_to_a_match_of_all_of_them() -> None:
    pattern = " ".join(["(%S*)"] * len(FIELD_LISTS["WORDS"]))
    assert positioned("f", "local w = { WORDS.match(text) }") == f"local w = {{ string.match(text, '^{pattern}$') }}"


def test_a_script_that_names_an_unknown_field_cannot_be_loaded() -> None:
    with pytest.raises(ScriptFormatError, match=r"^includes/f: STATE\.lok: the list STATE has no field of this name$"):
        positioned("includes/f", "return s[STATE.lok]")
    with pytest.raises(ScriptFormatError, match=r"TARGET\.lock"):
        positioned("f", "return s[TARGET.lock]")


@every_file
def test_no_file_reads_a_setting_by_a_numeric_position(name: str) -> None:
    text = text_of(name)
    read_at_once = re.findall(r"local (\w+) = redis\.call\('HMGET', [\w.\[\]]+, ([^\n]*)", text)
    settings = {setting.stored for setting in SETTINGS.values()}
    for reply, names in read_at_once:
        if names.startswith("unpack("):
            assert not re.findall(rf"\b{reply}\[\d+\]", text)
        else:
            assert settings & set(re.findall(r"'(\w+)'", names)) == set()


def test_the_operations_are_the_files_beside_the_folder_of_fragments() -> None:
    assert list(operations()) == sorted(path.stem for path in LUA.glob("*.lua"))
    assert "probe" in operations()


def test_a_script_is_loaded_once_and_knows_whether_it_takes_the_run_id() -> None:
    probe = load("probe")
    assert (probe.name, probe.takes_run_id) == ("probe", True)
    assert probe.source.startswith("#!lua flags=allow-oom\n-- probe.lua\nlocal now = ")
    assert load("probe") is probe


@pytest.mark.parametrize("name", ["nothing_of_the_kind", "includes/nothing", "../probe.lua", ""])
def test_loading_a_script_without_a_file_is_refused(name: str) -> None:
    with pytest.raises(ScriptFormatError, match="there is no "):
        load(name)


@pytest.mark.long("it packs the whole package")
def test_scripts_are_loaded_from_a_zipped_package(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sbredis", tmp_path / "whole" / "sbredis", ignore=shutil.ignore_patterns("__pycache__"))
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "whole")
    code = (
        f"import sys; sys.path.insert(0, {packed!r})\n"
        "from sbredis.engine import _scripts\n"
        "assert _scripts.__file__.startswith(sys.path[0]), _scripts.__file__\n"
        "print(*_scripts.operations(), _scripts.load('probe').sha)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*operations(), load("probe").sha]
