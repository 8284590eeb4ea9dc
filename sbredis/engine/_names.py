"""What entities, subscriptions, rules, sessions and messages may be called, and how names become bytes. Pure.

The names of entities are Azure's: shown as they were created, compared without regard to the case of letters. Letters
are those of ASCII, so no name brings a brace into a key, which would move the key to another slot.

Identifiers (message id, session id, partition key) are any text, compared character by character: nothing is folded
or normalised.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase

from sbredis._quoting import quoted

__all__ = [
    "entity_name",
    "identifier",
    "name_key",
    "namespace_name",
    "rule_name",
    "subscription_name",
]

_LONGEST_ENTITY_NAME, _LONGEST_NAME, _LONGEST_IDENTIFIER = 260, 50, 128

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


# -- names -------------------------------------------------------------------------------------------------------------


def entity_name(text: str) -> str:
    """The name of a queue or topic as it was given, if it is one; else :class:`ValueError`.

    A path of segments, as in ``billing/orders``. A segment ``subscriptions`` is refused, because
    ``topic/subscriptions/name`` addresses a subscription, and so are ``.`` and ``..``, which a URL does not keep; what
    begins with ``$``, such as ``$DeadLetterQueue``, is refused for its ``$``.
    """
    _require_name(text, "entity name", _PATH, _LONGEST_ENTITY_NAME, "letters, digits, '.', '-', '_' or '/'")
    for segment in text.split("/"):
        if not segment:
            raise ValueError(f"entity name {quoted(text)} has nothing between two '/'")
        if segment in (".", "..") or name_key(segment) == "subscriptions":
            raise ValueError(
                f"entity name {quoted(text)} has the segment {quoted(segment)}, which is reserved"
                f"{_of_a_subscription(text)}"
            )
    return text


def subscription_name(text: str) -> str:
    """The name of a subscription as it was given, if it is one; else :class:`ValueError`."""
    return _require_name(text, "subscription name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def rule_name(text: str) -> str:
    """The name of a rule as it was given, if it is one; else :class:`ValueError`. ``$Default`` is one."""
    _require_text(text, "rule name")
    if name_key(text) == "$default":
        return text
    return _require_name(text, "rule name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def namespace_name(text: str) -> str:
    """The name of a namespace as it was given, if it is one; else :class:`ValueError`. Case matters.

    The rule is the one for ``namespace=`` in a connection string; a test holds the two together.
    """
    return _require_name(text, "namespace", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def name_key(text: str) -> str:
    """The form in which names are compared: ASCII letters small, everything else as it is.

    Not :meth:`str.lower`, which makes an ASCII ``k`` of the Kelvin sign, so that no text that is not a name finds one.
    """
    return text.translate(_LOWER)


# -- identifiers -------------------------------------------------------------------------------------------------------


def identifier(text: str, what: str, *, may_be_empty: bool = False) -> bytes:
    """A message id, session id or partition key in UTF-8, or :class:`ValueError` with ``what`` it should have been.

    Up to 128 characters, each counted once however many bytes it takes. Only a session id may be empty.
    """
    _require_text(text, what)
    if not text and not may_be_empty:
        raise ValueError(f"{what} is empty; it has 1 to {_LONGEST_IDENTIFIER} characters")
    if len(text) > _LONGEST_IDENTIFIER:
        raise ValueError(f"{what} {quoted(text)} has {len(text)} characters; at most {_LONGEST_IDENTIFIER} are allowed")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} {quoted(text)} has half a surrogate pair as character {error.start}, which UTF-8 cannot express"
        ) from None


# -- refusals ----------------------------------------------------------------------------------------------------------


def _require_name(text: str, what: str, form: re.Pattern[str], longest: int, characters: str) -> str:
    _require_text(text, what)
    if len(text) > longest or not form.fullmatch(text):
        raise ValueError(
            f"{what} {quoted(text)} is not 1 to {longest} {characters} that begin and end with a letter or digit"
        )
    return text


def _of_a_subscription(text: str) -> str:
    """What to do instead, where somebody has given the path of a subscription."""
    *topic, word, name = ["", "", *text.split("/")]
    if not any(topic) or name_key(word) != "subscriptions" or "subscriptions" in map(name_key, topic):
        return ""
    return (
        f": it is the path of a subscription. Receive from it with get_subscription_receiver("
        f"{quoted('/'.join(topic[2:]))}, {quoted(name)}), and send to its topic"
    )


def _require_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {type(value).__name__}")
