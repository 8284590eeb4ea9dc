"""The constants of the scripts, as Lua. They are made from the life cycle and from the declarations of settings.

A script or a fragment names a constant in a line ``-- @use``, as it names a fragment. The loader then adds a local in
upper case: ``-- @use never`` gives it ``local NEVER = 9999999999999``. So ``_lifecycle.py`` and ``_bands.py``
are the only places that define the sides, "never" and the bands. Lua computes with doubles; every number here is exact
as a double.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sbredis.engine._bands import (
    BAND_WIDTH,
    BANDS,
    EPOCH_LEAP,
    LEVELS,
    RESERVED,
    SENTINEL,
    SENTINEL_BAND,
    SESSION_BANDS,
)
from sbredis.engine._keys import KINDS
from sbredis.engine._lifecycle import NEVER, Side, State
from sbredis.engine._results import LOST_RECORD
from sbredis.engine._state import LuaValue, settings_table

__all__ = ["CONSTANTS", "GENERATED"]


def _first_score(side: Side, state: State) -> int:
    return BANDS[side, state].start * BAND_WIDTH


def _side(side: Side) -> dict[str, LuaValue]:
    """Return the first score of each state of a side, and the range of its active messages as text for commands."""
    ready = BANDS[side, State.ACTIVE]
    last = BANDS.get((side, State.KEPT), ready)
    states = [state for of, state in BANDS if of is side and state is not State.ACTIVE and (of, state) not in RESERVED]
    return {
        "prefix": side.value,
        "ready": ready.start * BAND_WIDTH,
        "from": str(ready.start * BAND_WIDTH),
        "to": str(last.stop * BAND_WIDTH - 1),
        **{state.value: _first_score(side, state) for state in states},
    }


_SIDES: Final[Mapping[str, LuaValue]] = {side.value: _side(side) for side in Side}

CONSTANTS: Final[Mapping[str, LuaValue]] = MappingProxyType(
    {
        "band": BAND_WIDTH,
        "dead_ready": _first_score(Side.DEAD, State.ACTIVE),
        "epoch_leap": EPOCH_LEAP,
        "key_count": len(KINDS),
        "levels": LEVELS,
        "lost_record": LOST_RECORD.decode("latin-1").translate({0: r"\0", 1: r"\1"}),
        "never": NEVER,
        "never_text": str(NEVER),
        "ranks": {"source": 4 * BAND_WIDTH, "unseen": 2 * BAND_WIDTH, "stock": BAND_WIDTH},
        "scheduled": _first_score(Side.MAIN, State.SCHEDULED),
        "sentinel": {"name": SENTINEL, "score": SENTINEL_BAND * BAND_WIDTH},
        "settings": settings_table(),
        "sides": _SIDES,
        "state_bands": tuple(bands.start for bands in BANDS.values() if len(bands) == 1),
        "transfer": _first_score(Side.MAIN, State.TRANSFER),
        "turns": {name: number * BAND_WIDTH for name, number in SESSION_BANDS.items()},
    }
)
"""The constants, under the names that scripts use.

- ``band``: the number of scores in a band. A message's score in ``order`` is its band times this number, plus its own
  number.
- ``dead_ready``: the first score of dead letters that can be received.
- ``key_count``: the number of keys of a partition.
- ``epoch_leap``, ``levels``, ``never``: as in ``_bands.py`` and ``_lifecycle.py``. ``never_text`` is "never" as entries
  and settings store it.
- ``lost_record``: what scripts read in place of a record that is missing or that they cannot read
  (:data:`~sbredis.engine._results.LOST_RECORD`).
- ``ranks``: parts of the rank of an open grant: a source has this number of ranks, and grants with unseen gifts, or
  without waiting callers, stand this far behind others.
- ``scheduled``: the first score of scheduled messages.
- ``sentinel``: the name and score of the member in ``order`` and ``entries`` that is not a message.
- ``settings``: the values that each setting of a partition may have, as ``_settings.py`` declares them.
- ``sides``: a mapping from the prefix of a side to the first score of each of its states.
- ``state_bands``: the bands of all states of both sides, in order, without the states that have a band for each level.
- ``transfer``: the first score of messages that wait to be moved to an entity in another slot.
- ``turns``: the first score of each band in the key ``turns``. A member that is s and a session's name has the band
  free, locked or blocked. A session without messages to receive and without a lock has no such member. A
  member that is t and a session's name has a score for the time when the session's state was set.
"""


def _literal(value: LuaValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, tuple):
        return "{ " + ", ".join(map(_literal, value)) + " }"
    return "{ " + ", ".join(f"['{key}'] = {_literal(inner)}" for key, inner in value.items()) + " }"


def _side_named() -> str:
    """Return a function that makes one of the ``sides``, for scripts that would seldom use the others."""
    cases = [f"if prefix == '{prefix}' then\n    return {_literal(side)}\n" for prefix, side in _SIDES.items()]
    code = "  else".join(cases)
    return f"-- @remember {len(cases)}\nlocal function side_named(prefix)\n  {code}  end\nend\n"


GENERATED: Final[Mapping[str, str]] = MappingProxyType(
    {f"includes/{name}": f"local {name.upper()} = {_literal(value)}\n" for name, value in CONSTANTS.items()}
    | {"includes/side_named": _side_named()}
)
"""The Lua text of each constant. Its key looks like the name of a fragment's file."""
