"""The fields of a partition's ``state`` and ``store``, by name: lists that Python and the scripts share. Pure.

A script reads many fields with one HMGET, which answers by position. No Lua file counts these positions. It names a
list of fields instead, and the loader (:mod:`sbredis.engine._scripts`) puts in names and positions from this module::

    local s = redis.call('HMGET', keys[1], unpack(STATE))    the names of the fields
    local head = tonumber(s[STATE.head])                     the position of one field

The field ``settings`` of ``state`` is a text of several words, because one long field costs a call much less than many
short ones. The list ``WORDS`` has the names of these words::

    local w = { WORDS.match(text) }                          the words of the text
    local lock = tonumber(w[WORDS.lock])                     the position of one word
    local set = { WORDS.settings(w) }                        each setting by its name, with its type

The loader replaces the text of the script, so a call costs no more than with positions written by hand. A table of
names would cost more, because every call would build it again. If a script uses a name that is not in the list, loading
the script fails.

The field ``marks`` is a text of several numbers for the same reason. They seldom change, so ``parse_marks`` remembers
what such a text says.

``configure`` checks and stores settings with a table, the constant ``settings``, which also comes from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from sbredis.engine._settings import SETTINGS, Setting

__all__ = ["FIELD_LISTS", "LuaValue", "UnknownFieldError", "settings_table", "with_positions"]

LuaValue: TypeAlias = "bool | int | str | tuple[LuaValue, ...] | Mapping[str, LuaValue]"
"""The types of a script's constants."""


class UnknownFieldError(LookupError):
    """A script names a field that its list does not have."""


_IN_STATE: Final = tuple(setting for setting in SETTINGS.values() if not setting.with_records)

FIELD_LISTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "STATE": ("layout", "settings", "marks", "run_id", "clk", "granted", "used", "calling", "credit"),
        "TARGET": ("layout", "settings", "marks", "run_id", "calling", "credit"),
        "WORDS": ("incarnation", "version", *(setting.stored for setting in _IN_STATE)),
        "STORE": ("bytes", *(setting.stored for setting in SETTINGS.values() if setting.with_records)),
    }
)
"""The fields that scripts read together, by the name of the list.

- ``STATE``: all fields of a partition that a call may need.
- ``TARGET``: the fields of a subscription that publishing needs.
- ``WORDS``: the words of the field ``settings``.
- ``STORE``: the limits of the records and their present size, in the key ``store``.
"""

_USED = re.compile(
    rf"\b(?:unpack\((?P<all>{'|'.join(FIELD_LISTS)})\)"
    r"|WORDS\.match\((?P<text>\w+)\)|WORDS\.settings\((?P<words>\w+)\)"
    rf"|(?P<list>{'|'.join(FIELD_LISTS)})\.(?P<field>\w+))"
)


def with_positions(text: str) -> str:
    """Put names and positions of fields into the text of a Lua file, wherever the text names a list.

    Raises :class:`UnknownFieldError` for a field that the list does not have.
    """

    def put_in(use: re.Match[str]) -> str:
        if use["all"]:
            return ", ".join(f"'{name}'" for name in FIELD_LISTS[use["all"]])
        if use["text"]:
            return f"string.match({use['text']}, '^{' '.join(['(%S*)'] * len(FIELD_LISTS['WORDS']))}$')"
        if use["words"]:
            position = FIELD_LISTS["WORDS"].index
            values = ((setting, f"{use['words']}[{position(setting.stored) + 1}]") for setting in _IN_STATE)
            return ", ".join(f"{setting.stored} = {_of_its_type(setting, value)}" for setting, value in values)
        names = FIELD_LISTS[use["list"]]
        if use["field"] not in names:
            raise UnknownFieldError(f"{use[0]}: the list {use['list']} has no field of this name")
        return str(names.index(use["field"]) + 1)

    return _USED.sub(put_in, text)


def _of_its_type(setting: Setting, stored: str) -> str:
    """Return Lua that converts the stored text of a setting to its type: text, a number (or nil) or a boolean.

    Adding 0 converts a text to a number in less than half the time of ``tonumber``.
    """
    if setting.words:
        return stored
    if setting.least is None:
        return f"{stored} == '1'"
    return f"{stored} ~= '' and {stored} + 0 or nil" if setting.optional else f"{stored} + 0"


def settings_table() -> tuple[Mapping[str, LuaValue], ...]:
    """Return the table of settings for ``configure``, in the order in which ``configure`` takes them."""
    return tuple(map(_entry, SETTINGS.values()))


def _entry(setting: Setting) -> Mapping[str, LuaValue]:
    entry: dict[str, LuaValue] = {"name": setting.stored}
    if setting.least is not None and setting.most is not None:
        entry |= {"least": setting.least, "most": setting.most}
    else:
        entry["words"] = dict.fromkeys(setting.words or ("0", "1"), True)
    if setting.optional:
        entry["optional"] = True
    if setting.fixed is not None:
        entry["fixed"] = True
    if setting.with_records:
        entry["with_records"] = True
    else:
        entry["position"] = FIELD_LISTS["WORDS"].index(setting.stored) + 1
    return entry
