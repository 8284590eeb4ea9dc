"""The fields of the table of changes are declared once, and the Lua files use no others."""

from __future__ import annotations

import pytest

from sbredis.engine._changes import FIELDS, OPENED, _made, check_fields, unsound_fields
from sbredis.engine._expansion import ScriptFormatError, bare_code
from sbredis.engine._lua_files import lua_files, positioned, read_source
from sbredis.engine._state import UnknownFieldError


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("return p.noow", "p.noow"),
        ("p.noow = 1", "p.noow"),
        ("p.now, p.noow = 1, 2", "p.noow"),
        ("if target.haed == p.head then", "p.haed"),
        ("local p = {\n  now = 1, noow = { x = 2 },\n}", "p.noow"),
        ("target = old or { noow = f({ x = 2 }), head = 1 }", "p.noow"),
        ("return p.a + p.b + p.a", "p.a, p.b"),
    ],
)
def test_a_file_that_names_an_unknown_field_is_refused(code: str, fields: str) -> None:
    with pytest.raises(UnknownFieldError, match=f"^{fields}: a table of changes has no such field"):
        check_fields(code)
    with pytest.raises(ScriptFormatError, match=f"^send: {fields}: "):
        positioned("send", code)


@pytest.mark.parametrize(
    "code",
    [
        "return p.now -- not p.noow",
        "return 'p.noow' .. [[p.noow]]",
        "return list.p.noow + up.noow",
        "p.changed.anything = { anything = 1 }",
        "local p = { now = 1, changed = { x = 1 }, keys = { unpack(f({ y = 2 })) } }",
    ],
)
def test_a_file_may_name_every_other_thing(code: str) -> None:
    check_fields(code)


def test_begin_sets_exactly_the_fields_that_are_declared_for_it() -> None:
    assert set(_made(bare_code(read_source("includes/begin") or ""))) == set(OPENED)


def test_every_field_is_set_and_read_by_the_scripts() -> None:
    assert list(unsound_fields(lua_files())) == []


def test_a_field_that_nothing_sets_or_nothing_reads_is_found() -> None:
    others = {"every": "\n".join(f"p.{name} = p.{name}" for name in FIELDS if name not in {"room", "upkeep"})}
    reads = {"send": "if p.room then"}
    sets = {"grant": "p.upkeep, p.room = true, nil"}
    assert list(unsound_fields(others | reads | sets)) == [
        "p.upkeep: nothing reads this field",
        "p.room: nothing sets this field; grant reads it",
    ]
