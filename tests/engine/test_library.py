"""One library of all operations: the loader makes it from the same files as the single scripts, and servers load it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import pytest

from sbredis.engine import Partition, PartitionSettings, whole_library
from sbredis.engine._expansion import ScriptFormatError
from sbredis.engine._library import MOST_LOCALS, MOST_UPVALUES, library
from sbredis.engine._lua_files import contract_of, lua_files
from sbredis.engine._scripts import load, operations, with_fact
from sbredis.exceptions import ScriptRefusedError
from sbredis.servers import LocalServer
from sbredis.transport import Library
from tests.engine.model import Refused
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import MACHINES, drive
from tests.engine.proof.hosts import host, with_texts_replaced
from tests.plugins.parts import first

pytestmark = pytest.mark.any_form("the tests load libraries themselves")

# -- the text ----------------------------------------------------------------------------------------------------------

FILES = {
    "send": "#!lua flags=allow-oom\n-- @use begin finish\nlocal p = begin(KEYS)\nreturn finish(p)\n",
    "count": "#!lua\n-- @use begin\nreturn begin(KEYS)[1]\n",
    "includes/begin": "-- @use clock inside\nlocal function begin(keys)\n  return { clock(), keys }\nend\n",
    "includes/clock": "local function clock()\n  return 7\nend\n",
    "includes/finish": "-- @use clock\nlocal function finish(p)\n  return clock() + p[1]\nend\n",
}


def made(files: Mapping[str, str], second_forms: Mapping[str, str] | None = None) -> Library:
    return library([name for name in files if "/" not in name], files.get, second_forms or {})


def test_each_fragment_comes_once_and_each_operation_is_a_function_with_its_flags() -> None:
    text = made(FILES, {"count": "count_at_limit"})
    assert text.functions == {"send", "count", "count_at_limit"}
    body = text.source.partition("-- includes/clock\n")[2]
    assert body.replace(text.name, "LIBRARY") == (
        "local function clock()\n  return 7\nend\n"
        "-- includes/begin\nlocal function begin(keys)\n  return { clock(), keys }\nend\n"
        "do\n"
        "-- includes/finish\nlocal function finish(p)\n  return clock() + p[1]\nend\n"
        "-- send.lua\nlocal run = function(KEYS, ARGV)\nlocal p = begin(KEYS)\nreturn finish(p)\nend\n"
        "redis.register_function({ function_name = 'LIBRARY_send', callback = run, flags = { 'allow-oom' } })\n"
        "end\n"
        "do\n"
        "-- count.lua\nlocal run = function(KEYS, ARGV)\nreturn begin(KEYS)[1]\nend\n"
        "redis.register_function({ function_name = 'LIBRARY_count', callback = run })\n"
        "redis.register_function({ function_name = 'LIBRARY_count_at_limit', callback = run"
        ", flags = { 'allow-oom' } })\n"
        "end\n"
        "end\n"
    )


def test_a_function_that_only_one_fragment_uses_is_in_the_block_of_that_fragment(server: LocalServer) -> None:
    """Its local counts only there. A constant, and a function that an operation uses too, have a wider block."""
    files = {
        "send": "#!lua\n-- @use outer\nreturn outer()\n",
        "count": "#!lua\n-- @use outer shared\nreturn outer() + shared()\n",
        "includes/outer": "-- @use middle one\n-- @use shared inside\n"
        "local function outer()\n  return middle() + one + shared()\nend\n",
        "includes/middle": "-- @use inner shared\nlocal function middle()\n  return inner() + shared()\nend\n",
        "includes/inner": "local function inner()\n  return 100\nend\n",
        "includes/one": "local one = 1\n",
        "includes/shared": "local function shared()\n  return 10\nend\n",
    }
    text = made(files)
    body = text.source.partition("-- includes/outer\n")[0].partition("local outer\n")[2]
    assert body == (
        "do\nlocal middle\ndo\n-- includes/inner\nlocal function inner()\n  return 100\nend\n"
        "-- includes/middle\nfunction middle()\n  return inner() + shared()\nend\nend\n"
    )
    server.ask("FUNCTION", "LOAD", text.source)
    assert server.ask("FCALL", f"{text.name}_send", "0") == 121
    assert server.ask("FCALL", f"{text.name}_count", "0") == 131


def test_the_name_of_a_library_depends_on_its_text_alone() -> None:
    same, other = FILES | {}, FILES | {"includes/clock": "local function clock()\n  return 8\nend\n"}
    assert (made(FILES).name, made(FILES).source) == (made(same).name, made(same).source)
    assert re.fullmatch(r"sb_[0-9a-f]{16}", made(FILES).name)
    assert made(other).name != made(FILES).name


def uses(names: list[str]) -> str:
    return "".join(f"-- @use {' '.join(names[at : at + 8])}\n" for at in range(0, len(names), 8))


def constants(count: int) -> dict[str, str]:
    return {f"includes/c{number}": f"local c{number} = {number}\n" for number in range(count)}


def with_locals(count: int, operation: str = "o") -> dict[str, str]:
    """Return an operation that uses this number of constants, by way of fragments that use some of them each."""
    names = [f"c{number}" for number in range(count)]
    files = constants(count)
    parts = []
    for at in range(0, count, 50):
        part = f"{operation}{at}"
        parts.append(part)
        of_part = names[at : at + 50]
        body = f"local function {part}()\n  return {' + '.join(of_part)}\nend\n"
        files[f"includes/{part}"] = uses(of_part) + body
    called = " + ".join(f"{part}()" for part in parts)
    return files | {operation: f"#!lua\n{uses(parts)}return {called}\n"}


def test_a_library_with_too_many_locals_is_refused_and_the_largest_one_is_loaded(server: LocalServer) -> None:
    """The locals are the constants, a fragment for each 50 of them, the function that remembers, and the operation."""
    most = MOST_LOCALS - 4 - 2
    largest = made(with_locals(most))
    server.ask("FUNCTION", "LOAD", largest.source)
    assert server.ask("FCALL", f"{largest.name}_o", "0") == sum(range(most))
    text = f"^o: {MOST_LOCALS + 1} locals of the library at one time, and Lua permits {MOST_LOCALS}; "
    with pytest.raises(ScriptFormatError, match=text):
        made(with_locals(most + 1))
    # The operations of a second block have locals of their own.
    divided = made(
        with_locals(most)
        | {"p": "#!lua\n-- @use x y\nreturn x + y\n"}
        | {f"includes/{x}": f"local {x} = 1" for x in "xy"}
    )
    server.ask("FUNCTION", "LOAD", divided.source)
    assert server.ask("FCALL", f"{divided.name}_p", "0") == 2


def test_a_library_whose_operations_share_too_many_fragments_is_refused() -> None:
    files = with_locals(MOST_LOCALS)
    with pytest.raises(ScriptFormatError, match=f"^fragments of several operations: {MOST_LOCALS + 5} locals"):
        made(files | {"p": files["o"]})


@pytest.mark.parametrize("of_fragment", [False, True])
def test_a_function_that_uses_too_many_fragments_is_refused_and_the_largest_one_is_loaded(
    of_fragment: bool, server: LocalServer
) -> None:
    def using(count: int) -> dict[str, str]:
        names = [f"c{number}" for number in range(count)]
        total = f"return {' + '.join(names)}\n"
        if of_fragment:
            fragment = f"{uses(names)}local function f()\n  {total}end\n"
            return constants(count) | {"o": "#!lua\n-- @use f\nreturn f()\n", "includes/f": fragment}
        return constants(count) | {"o": f"#!lua\n{uses(names)}{total}"}

    largest = made(using(MOST_UPVALUES))
    server.ask("FUNCTION", "LOAD", largest.source)
    assert server.ask("FCALL", f"{largest.name}_o", "0") == sum(range(MOST_UPVALUES))
    name = "includes/f" if of_fragment else "o"
    with pytest.raises(ScriptFormatError, match=f"^{name}: it uses {MOST_UPVALUES + 1} fragments, and Lua permits "):
        made(using(MOST_UPVALUES + 1))


# -- remembered results ------------------------------------------------------------------------------------------------

ECHO = {
    "o": "#!lua\n-- @use f\nreturn { f[ARGV[1]].text, f[ARGV[1]].times }\n",
    # The result says how often the function has run since the last text that it took in.
    "includes/f": "-- @use log\n-- @remember 2\nlocal function f(text)\n  log[1] = log[1] + 1\n"
    "  if text == 'bad' then\n    error('bad text')\n  end\n  return { text = text, times = log[1] }\nend\n",
    "includes/log": "local log = { 0 }\n",
}


@pytest.fixture
def echo(server: LocalServer) -> Library:
    loaded = made(ECHO)
    server.ask("FUNCTION", "LOAD", "REPLACE", loaded.source)
    return loaded


def asked(server: LocalServer, of: Library, text: str) -> list[object]:
    reply = server.ask("FCALL", f"{of.name}_o", "0", text)
    assert isinstance(reply, list)
    return list(reply)


def test_a_library_remembers_the_results_for_some_texts_and_forgets_all_when_there_are_more(
    server: LocalServer, echo: Library
) -> None:
    assert [asked(server, echo, text) for text in "abab"] == [["a", 1], ["b", 2], ["a", 1], ["b", 2]]
    assert [asked(server, echo, text) for text in "cab"] == [["c", 3], ["a", 4], ["b", 5]]


def test_the_results_for_numbers_are_remembered_too(server: LocalServer) -> None:
    loaded = made(ECHO | {"o": ECHO["o"].replace("ARGV[1]", "#ARGV[1]")})
    server.ask("FUNCTION", "LOAD", "REPLACE", loaded.source)
    assert [asked(server, loaded, text) for text in ("x", "xx", "y", "xyz", "x")] == [
        [1, 1],
        [2, 2],
        [1, 1],
        [3, 3],
        [1, 4],
    ]


def test_a_call_that_fails_leaves_nothing_to_remember(server: LocalServer, echo: Library) -> None:
    for number in (1, 2):
        with pytest.raises(ScriptRefusedError, match="bad text"):
            asked(server, echo, "bad")
        assert asked(server, echo, f"good{number}") == [f"good{number}", 2 * number]


def test_the_result_for_a_long_text_is_not_remembered(server: LocalServer, echo: Library) -> None:
    assert asked(server, echo, "x" * 1024) == asked(server, echo, "x" * 1024)
    assert asked(server, echo, "x" * 1025) != asked(server, echo, "x" * 1025)


@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        (
            "-- @remember 5\nlocal f = 1",
            "o -> f, line 2: only the results of a function of one argument can be remembered",
        ),
        ("-- @remember 5\nlocal function f(a, b)\nend", "o -> f, line 2: only the results of a function"),
        (
            "-- @remember\nlocal function f(a)\nend",
            "o -> f, line 1: expected '-- @use NAME …' or '-- @remember NUMBER'",
        ),
        (
            "-- @remember 0\nlocal function f(a)\nend",
            "o -> f, line 1: expected '-- @use NAME …' or '-- @remember NUMBER'",
        ),
    ],
)
def test_only_the_results_of_a_function_of_one_text_can_be_remembered(fragment: str, text: str) -> None:
    with pytest.raises(ScriptFormatError, match="^" + re.escape(text)):
        made({"o": "#!lua\n-- @use f\nreturn f('')\n", "includes/f": fragment})


# These tables are remembered. Here their fields can be read, also as those of a metatable, and a change is an error.
FROZEN_TABLE = """\
  local function frozen(found)
    local function refuse_change(_, name)
      error(name .. ' was changed')
    end
    return setmetatable({ __index = found }, { __index = found, __newindex = refuse_change })
  end
"""
FROZEN = {
    f"includes/{name}": [(f"({of})\n", f"({of})\n{FROZEN_TABLE}"), (f"  return {made}", f"  return {frozen}")]
    for name, of, made, frozen in (
        ("parse_settings", "text", "set\n", "frozen(set)\n"),
        ("parse_credit", "text", "parsed\n", "frozen(parsed)\n"),
        ("flags_of", "text", "flags\n", "frozen(flags)\n"),
        ("side_named", "prefix", "{", "frozen {"),
    )
}


@pytest.mark.parametrize("what", first(1, reversed(MACHINES), "each machine is one more search"))
def test_no_script_changes_what_is_remembered(what: str, shared_server: LocalServer) -> None:
    tally = Tally()
    with host("library", with_texts_replaced(FROZEN), server=shared_server) as on:
        drive(on, tally, examples=3, what=what)
    assert tally.steps > 0


def test_damaged_settings_leave_nothing_to_remember(server: LocalServer) -> None:
    """Settings that cannot be read, or only in part, are refused or fail; whole ones are read as before."""
    partition = Partition("hosts", "abc", "e", "i1", 1, PartitionSettings())
    state = partition.keys[0]
    with host("library", server=server) as on:
        on.run(partition.configure(create=True))
        settings = on.ask("HGET", state, "settings")
        assert on.run(partition.count()).active == 0
        for damaged in (b"", b"x" * 5000, settings + b" 1", settings.replace(b" 60000 ", b" sixty "), settings[:-1]):
            on.ask("HSET", state, "settings", damaged)
            with contextlib.suppress(Refused, AssertionError):
                on.run(partition.count())
            on.ask("HSET", state, "settings", settings)
            assert on.run(partition.count()).active == 0


# -- the library of sbredis --------------------------------------------------------------------------------------------


def test_the_library_has_a_function_for_each_script() -> None:
    own = whole_library()
    assert own.functions == {*operations(), *(f"{name}_at_limit" for name in with_fact("at_limit"))}
    for name in operations():
        flags = contract_of(name).flags
        said = f", flags = {{ {', '.join(repr(flag) for flag in flags)} }}" if flags else ""
        assert f"function_name = '{own.name}_{name}', callback = run{said} }})\n" in own.source


def test_the_library_is_much_shorter_than_the_scripts() -> None:
    assert len(whole_library().source) < sum(len(load(name).source) for name in operations()) / 5


def test_no_script_changes_a_constant() -> None:
    """A constant of a library is there for all calls."""
    changes = re.compile(r"^\s*[A-Z][A-Z_]+\b[^=\n]*[^=~<>\n]=[^=]", re.MULTILINE)
    assert {name: found for name, text in lua_files().items() if (found := changes.findall(text))} == {}


def test_a_server_loads_the_library_once(server: LocalServer) -> None:
    own = whole_library()
    server.ask("FUNCTION", "FLUSH")
    assert server.ask("FUNCTION", "LOAD", own.source) == own.name
    with pytest.raises(ScriptRefusedError, match="already exists"):
        server.ask("FUNCTION", "LOAD", own.source)
    reply = server.ask("FCALL", f"{own.name}_probe", "1", "sb:n:{abc}:probe", "run")
    assert isinstance(reply, list)
    assert reply[1:] == [1, "run"]
    with pytest.raises(ScriptRefusedError, match="Can not execute a script with write flag using"):
        server.ask("FCALL_RO", f"{own.name}_probe", "1", "sb:n:{abc}:probe", "run")
