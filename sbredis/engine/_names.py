"""Checks of the names of entities, subscriptions, rules, sessions and messages. Pure.

Names of entities follow Azure's rules: they are shown as they were created, and compared without regard to case. They
consist of ASCII characters without braces, because a brace in a key would move the key to another slot.

Identifiers (message id, session id, partition key) are any text. They are compared character by character, without
folding case or normalising.
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
    "role_name",
    "rule_name",
    "subscription_name",
    "tick_name",
]

_LONGEST_ENTITY_NAME, _LONGEST_NAME, _LONGEST_IDENTIFIER = 260, 50, 128

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


# -- names -------------------------------------------------------------------------------------------------------------


def entity_name(text: str) -> str:
    """Return the name of a queue or topic unchanged; raise :class:`ValueError` if it is not valid.

    A name is a path of segments, as in ``billing/orders``. The segment ``subscriptions`` is refused, because
    ``topic/subscriptions/name`` addresses a subscription. The segments ``.`` and ``..`` are refused, because a URL does
    not preserve them. A name such as ``$DeadLetterQueue`` is refused, because it contains a ``$``.
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
    """Return the name of a subscription unchanged; raise :class:`ValueError` if it is not valid."""
    return _require_name(text, "subscription name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def rule_name(text: str) -> str:
    """Return the name of a rule unchanged; raise :class:`ValueError` if it is not valid. ``$Default`` is valid."""
    _require_text(text, "rule name")
    if name_key(text) == "$default":
        return text
    return _require_name(text, "rule name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def namespace_name(text: str) -> str:
    """Return the name of a namespace unchanged; raise :class:`ValueError` if it is not valid. Case matters.

    The rule is the same as for ``namespace=`` in a connection string; a test compares the two.
    """
    return _require_name(text, "namespace", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def role_name(text: str) -> str:
    """Return the name of a role unchanged; raise :class:`ValueError` if it is not valid. Case matters."""
    return _require_name(text, "role name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def tick_name(text: str) -> str:
    """Return the name of a tick unchanged; raise :class:`ValueError` if it is not valid. Case matters."""
    return _require_name(text, "tick name", _NAME, _LONGEST_NAME, "letters, digits, '.', '-' or '_'")


def name_key(text: str) -> str:
    """Return the form in which names are compared: ASCII letters in lower case, everything else unchanged.

    :meth:`str.lower` would turn the Kelvin sign into an ASCII ``k``, so a text that is not a valid name would find an
    entity.
    """
    return text.translate(_LOWER)


# -- identifiers -------------------------------------------------------------------------------------------------------


def identifier(text: str, what: str, *, may_be_empty: bool = False) -> bytes:
    """Return a message id, session id or partition key in UTF-8; raise :class:`ValueError` if it is not valid.

    ``what`` names the identifier in the error. An identifier has up to 128 characters, each of any number of bytes.
    Only a session id may be empty.
    """
    _require_text(text, what)
    if not text and not may_be_empty:
        raise ValueError(f"{what} is empty; it must have 1 to {_LONGEST_IDENTIFIER} characters")
    if len(text) > _LONGEST_IDENTIFIER:
        raise ValueError(f"{what} {quoted(text)} has {len(text)} characters; at most {_LONGEST_IDENTIFIER} are allowed")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} {quoted(text)} has half a surrogate pair as character {error.start}, which UTF-8 cannot encode"
        ) from None


# -- refusals ----------------------------------------------------------------------------------------------------------


def _require_name(text: str, what: str, form: re.Pattern[str], longest: int, characters: str) -> str:
    _require_text(text, what)
    if len(text) > longest or not form.fullmatch(text):
        raise ValueError(
            f"{what} {quoted(text)} must have 1 to {longest} {characters}, and begin and end with a letter or digit"
        )
    return text


def _of_a_subscription(text: str) -> str:
    """Return advice for an error if the name is the path of a subscription; otherwise an empty text."""
    *topic, word, name = ["", "", *text.split("/")]
    if not any(topic) or name_key(word) != "subscriptions" or "subscriptions" in map(name_key, topic):
        return ""
    return (
        f": it is the path of a subscription. Receive from it with get_subscription_receiver("
        f"{quoted('/'.join(topic[2:]))}, {quoted(name)}), and send to its topic"
    )


def _require_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}")
