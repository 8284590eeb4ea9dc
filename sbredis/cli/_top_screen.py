"""The screen of ``top``: samples in, lines out; keys in, new settings of the view out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sbredis._counting import counted
from sbredis.operating import Sample, Sight

__all__ = ["ViewSettings", "frame", "pressed"]

_BARS = {"active": "█", "locked": "▓", "delayed": "▒", "deferred": "▒", "scheduled": "░"}
"""The states whose messages make the depth, with the sign of each in a bar."""
_LEGEND = "█ active  ▓ locked  ▒ delayed, deferred  ░ scheduled"
_KEYS = "q quit  p pause  / filter  s sort  r reverse  ↑↓ scroll"
_LONGEST_NAME, _SHORTEST_NAME = 40, 12
_SHORTEST_BAR, _LONGEST_BAR = 6, 40


_ORDERS: dict[str, Callable[[Sight], float]] = {
    "depth": lambda sight: sight.now.depth,
    "in": lambda sight: sight.incoming or 0.0,
    "out": lambda sight: sight.outgoing or 0.0,
    "oldest": lambda sight: sight.now.oldest or 0.0,
    "consumers": lambda sight: sight.now.consumers,
    "dead": lambda sight: sight.now.dead,
}
_BY_NAME = "name"


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """What the user wants to see."""

    order: str = "depth"
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    """Whether keys go into the filter."""
    paused: bool = False
    first: int = 0
    """The first row that is shown."""
    ended: bool = False


def pressed(view: ViewSettings, key: str) -> ViewSettings:
    """Return the settings after a key: a character, or the name of a special key."""
    if view.typing:
        return _typed(view, key)
    orders = [_BY_NAME, *_ORDERS]
    by_letter = {"n": "name", "d": "depth", "i": "in", "o": "out", "a": "oldest", "c": "consumers", "x": "dead"}
    if key == "s":
        return replace(view, order=orders[(orders.index(view.order) + 1) % len(orders)], first=0)
    if key in by_letter:
        return replace(view, order=by_letter[key], first=0)
    steps = {"down": 1, "j": 1, "up": -1, "k": -1, "page down": 10, "page up": -10}
    if key in steps:
        return replace(view, first=max(0, view.first + steps[key]))
    changes: dict[str, Callable[[], ViewSettings]] = {
        "q": lambda: replace(view, ended=True),
        "r": lambda: replace(view, reverse=not view.reverse),
        "p": lambda: replace(view, paused=not view.paused),
        " ": lambda: replace(view, paused=not view.paused),
        "/": lambda: replace(view, typing=True, first=0),
        "escape": lambda: replace(view, filter="", first=0),
    }
    return changes[key]() if key in changes else view


def _typed(view: ViewSettings, key: str) -> ViewSettings:
    if key == "enter":
        return replace(view, typing=False)
    if key == "escape":
        return replace(view, typing=False, filter="")
    if key == "backspace":
        return replace(view, filter=view.filter[:-1], first=0)
    return replace(view, filter=view.filter + key, first=0) if len(key) == 1 and key.isprintable() else view


def chosen(sights: Sequence[Sight], view: ViewSettings) -> list[Sight]:
    """Return the sights that match the filter, in the order that the user has chosen."""
    found = sorted(
        (sight for sight in sights if view.filter.lower() in sight.now.path.lower()),
        key=lambda sight: sight.now.path.lower(),
    )
    if view.order != _BY_NAME:
        found.sort(key=_ORDERS[view.order], reverse=not view.reverse)  # the sort is stable, so names stay in order
    elif view.reverse:
        found.reverse()
    return found


def frame(title: str, sights: Sequence[Sight], view: ViewSettings, width: int, height: int | None = None) -> list[str]:
    """Return the lines of the screen: no wider than ``width``, and no more than ``height``."""
    found = chosen(sights, view)
    head = [_title(title, found, view, width), _shortened(_second_line(view), width)]
    foot = [_shortened(_LEGEND, width), *([_shortened(_KEYS, width)] if height is not None else [])]
    room = len(found) if height is None else max(0, height - len(head) - len(foot) - 1)
    first = min(view.first, max(0, len(found) - room))
    shown = found[first : first + room]
    lines = [*head, *_table(shown, found, view, width), *foot]
    return lines if height is None else lines[:height]


_COLUMNS: list[tuple[str, str, int, Callable[[Sight], str]]] = [
    ("depth", "DEPTH", 7, lambda sight: _number(sight.now.depth)),
    ("dead", "DEAD", 6, lambda sight: _number(sight.now.dead)),
    ("oldest", "OLDEST", 7, lambda sight: _age(sight.now.oldest)),
    ("in", "IN/S", 7, lambda sight: _rate(sight.incoming, least=sight.rates_are_least)),
    ("out", "OUT/S", 7, lambda sight: _rate(sight.outgoing, least=sight.rates_are_least)),
    ("consumers", "WAITING", 7, lambda sight: _number(sight.now.consumers)),
]
"""The columns behind the name, the most important first. A narrow screen leaves out the last ones."""
_PLACES = ["depth", "in", "out", "oldest", "consumers", "dead"]


def _table(shown: Sequence[Sight], found: Sequence[Sight], view: ViewSettings, width: int) -> list[str]:
    longest = max([len(_name(sight)) for sight in found], default=0)
    name = max(_SHORTEST_NAME, min(_LONGEST_NAME, longest))
    room = width - _SHORTEST_NAME
    kept: dict[str, tuple[str, int, Callable[[Sight], str]]] = {}
    for key, heading, size, text in _COLUMNS:
        if room < size + 1:
            break
        kept[key] = (heading, size, text)
        room -= size + 1
    left = width - sum(size + 1 for _, size, _ in kept.values())
    bar = min(_LONGEST_BAR, left - min(name, max(_SHORTEST_NAME, left - _SHORTEST_BAR - 1)) - 1)
    bar = bar if bar >= _SHORTEST_BAR else 0
    name = min(name, left - (bar + 1 if bar else 0))
    deepest = max([sight.now.depth for sight in found], default=0)

    def line(cells: Mapping[str, str], title: str, blocks: str) -> str:
        parts = [f"{_middle(title, name):<{name}}"]
        for key in (key for key in _PLACES if key in kept):
            parts.append(f"{cells[key]:>{kept[key][1]}}")
            if key == "depth" and bar:
                parts.append(f"{blocks:<{bar}}")
        return " ".join(parts).rstrip()

    mark = "▲" if view.reverse else "▼"
    names = {key: heading for key, (heading, _, _) in kept.items()} | {_BY_NAME: "NAME"}
    head = {key: mark + text if key == view.order else text for key, text in names.items()}
    return [
        line(head, head[_BY_NAME], ""),
        *(
            line({key: text(sight) for key, (_, _, text) in kept.items()}, _name(sight), _bar(sight.now, deepest, bar))
            for sight in shown
        ),
    ]


def _bar(sample: Sample, deepest: int, width: int) -> str:
    """Return a bar as long as the depth, with a sign for each state. A state with messages has one sign at least."""
    if not deepest or not width:
        return ""
    cells = "".join(
        sign * max(1, round(sample.counts[state] * width / deepest))
        for state, sign in _BARS.items()
        if sample.counts.get(state)
    )
    return cells[:width]


def _title(title: str, found: Sequence[Sight], view: ViewSettings, width: int) -> str:
    depth, dead = sum(sight.now.depth for sight in found), sum(sight.now.dead for sight in found)
    parts = [
        title,
        counted(len(found), "entity", "entities"),
        _counted(depth, "message"),
        _counted(dead, "dead letter"),
    ]
    if view.paused:
        parts.insert(0, "PAUSED")
    while len(" · ".join(parts)) > width and len(parts) > 1:
        parts.pop(1 if view.paused and len(parts) > 2 else 0)
    return _shortened(" · ".join(parts), width)


def _second_line(view: ViewSettings) -> str:
    if view.typing:
        return f"filter: {view.filter}_   (Enter keeps it, Esc clears it)"
    return f"filter: {view.filter}   (Esc clears it)" if view.filter else ""


def _name(sight: Sight) -> str:
    return ("! " if sight.now.unavailable else "") + sight.now.path


def _number(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scale = 1e3 if unit == "k" else size
            scaled = value / scale
            return f"{scaled:.1f}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"


def _counted(count: int, noun: str) -> str:
    return f"{_number(count)} {noun if count == 1 else f'{noun}s'}"


def _rate(value: float | None, *, least: bool) -> str:
    if value is None:
        return "-"
    return ("≥" if least else "") + (f"{value:.1f}" if 0 < value < 10 else _number(value))


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _middle(text: str, width: int) -> str:
    """Shorten a name in its middle, because its end often tells names apart."""
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    return text[:left] + "…" + text[len(text) - (width - 1 - left) :]
