"""The allowed names, and the bytes as which names and identifiers are stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbredis.engine import entity_name, identifier, name_key, namespace_name, rule_name, subscription_name
from sbredis.transport import parse_target

Checked = Callable[[str], str]

NAMERS: list[tuple[Checked, int]] = [
    (entity_name, 260),
    (subscription_name, 50),
    (rule_name, 50),
    (namespace_name, 50),
]
every_kind_of_name = pytest.mark.parametrize("named", [named for named, _ in NAMERS])

# -- names -------------------------------------------------------------------------------------------------------------


@every_kind_of_name
@pytest.mark.parametrize("name", ["a", "7", "Orders", "a.b-c_d", "9-to-5", "A--b__c..d", "Z" * 50])
def test_a_name_is_returned_as_it_was_given(named: Checked, name: str) -> None:
    assert named(name) == name


@every_kind_of_name
@pytest.mark.parametrize(
    "name",
    ["", " ", "-a", "a-", ".a", "a.", "_a", "a_", "/a", "a/", "a b", "a\n", "\na", "a\0b", "a:b", "a{b}c", "{a}", "a}",
     "a*b", "a?b", "a#b", "a@b", "a\\b", "a%20b", "naïve", "a\u0660", "\uff41", "\u212a", "$", "$a",
     "a/$DeadLetterQueue"],
)  # fmt: skip
def test_an_invalid_name_is_refused_with_the_allowed_form(named: Checked, name: str) -> None:
    """The invalid names include every text with a brace, which would move a key to another slot."""
    with pytest.raises(
        ValueError, match=r"must have 1 to \d+ letters, digits, .* begin and end with a letter or digit"
    ):
        named(name)


@given(st.text(), st.sampled_from("{}"), st.text())
def test_a_brace_is_refused_in_every_name(before: str, brace: str, after: str) -> None:
    for named, _ in NAMERS:
        with pytest.raises(ValueError, match="must have 1 to"):
            named(before + brace + after)


@pytest.mark.parametrize(("named", "longest"), NAMERS)
def test_a_name_longer_than_the_limit_is_refused(named: Checked, longest: int) -> None:
    assert named("a" * longest) == "a" * longest
    with pytest.raises(ValueError, match=f"must have 1 to {longest} letters"):
        named("a" * (longest + 1))


@every_kind_of_name
@pytest.mark.parametrize("value", [None, 7, b"orders", ["orders"]])
def test_a_name_that_is_not_text_is_refused(named: Callable[[Any], str], value: Any) -> None:
    with pytest.raises(TypeError, match=f"must be text, not {type(value).__name__}"):
        named(value)


@pytest.mark.parametrize("name", ["a/b", "billing/Orders/2024", "a./b", "a/-b", "subscriptions2", "my/subscription"])
def test_the_name_of_an_entity_may_be_a_path(name: str) -> None:
    assert entity_name(name) == name
    if "/" in name:
        for named in (subscription_name, rule_name, namespace_name):
            with pytest.raises(ValueError, match="must have 1 to 50"):
                named(name)


def test_a_path_has_no_empty_segment() -> None:
    with pytest.raises(ValueError, match=r"'a//b' has nothing between two '/'"):
        entity_name("a//b")


@pytest.mark.parametrize(
    "name",
    ["subscriptions", "SUBSCRIPTIONS", "orders/Subscriptions/audit", "Subscriptions/a", "a/subscriptions", "a/./b",
     "a/../b"],
)  # fmt: skip
def test_a_path_segment_with_a_special_meaning_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"has the segment '(?i:subscriptions|\.|\.\.)', which is reserved"):
        entity_name(name)


@pytest.mark.parametrize("name", ["$Default", "$default", "$DEFAULT"])
def test_only_a_rule_may_have_the_name_of_the_default_rule(name: str) -> None:
    assert rule_name(name) == name
    for named in (entity_name, subscription_name, namespace_name):
        with pytest.raises(ValueError, match="must have 1 to"):
            named(name)


@given(
    st.one_of(st.text(st.characters(codec="utf-8"), min_size=1), st.from_regex(r"[A-Za-z0-9._-]{1,52}", fullmatch=True))
)
@example("a" * 50)
@example("a" * 51)
@example("orders\n")
def test_a_namespace_name_is_valid_if_a_connection_string_accepts_it(text: str) -> None:
    try:
        expected: str | None = parse_target(f"memory://here?namespace={quote(text, safe='')}").namespace
    except ValueError:
        expected = None
    try:
        found: str | None = namespace_name(text)
    except ValueError:
        found = None
    assert found == expected


# -- how names are compared --------------------------------------------------------------------------------------------


@given(st.from_regex(r"[A-Za-z0-9._/-]+", fullmatch=True))
def test_names_that_differ_only_in_case_have_the_same_key(name: str) -> None:
    assert name_key(name) == name_key(name.upper()) == name_key(name.lower()) == name.lower()


@given(st.text())
@example("\u212a")  # the Kelvin sign; its lower case is an ASCII k
@example("\u0130")  # its lower case is two characters, the first an ASCII i
def test_text_outside_ascii_never_becomes_an_ascii_key(text: str) -> None:
    assert len(name_key(text)) == len(text)
    assert name_key(text).isascii() == text.isascii()


# -- identifiers -------------------------------------------------------------------------------------------------------

CHARACTERS = st.characters(exclude_categories=["Cs"])
IDENTIFIERS = st.text(CHARACTERS, max_size=128)


@given(IDENTIFIERS.filter(bool))
@example("\0")
@example("{a}")
@example("\U0010ffff" * 128)
def test_an_identifier_is_any_text_in_utf_8(text: str) -> None:
    assert identifier(text, "message id") == text.encode("utf-8")


def test_an_identifier_has_at_most_128_characters_however_many_bytes() -> None:
    assert len(identifier("é" * 128, "message id")) == 256
    with pytest.raises(ValueError, match=r"message id 'é+… has 129 characters; at most 128 are allowed"):
        identifier("é" * 128 + "a", "message id")


def test_an_empty_identifier_is_refused_unless_it_may_be_empty() -> None:
    assert identifier("", "session id", may_be_empty=True) == b""
    with pytest.raises(ValueError, match="partition key is empty; it must have 1 to 128 characters"):
        identifier("", "partition key")


@pytest.mark.parametrize(("text", "at"), [("\ud800", 0), ("ab\udfff", 2), ("a\ud83d\ude00", 1)])
def test_half_of_a_surrogate_pair_is_refused(text: str, at: int) -> None:
    """Two surrogate halves in a Python text are not one character either, so they are refused too."""
    with pytest.raises(ValueError, match=f"message id '.*' has half a surrogate pair as character {at}"):
        identifier(text, "message id")


@pytest.mark.parametrize("value", [None, 7, b"id"])
def test_an_identifier_that_is_not_text_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=f"session id must be text, not {type(value).__name__}"):
        identifier(value, "session id", may_be_empty=True)


# -- error texts -------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(), min_size=200, max_size=300))
def test_no_error_repeats_more_than_sixty_characters_of_a_value(text: str) -> None:
    text = f"{{{text}"
    refusals: list[Callable[[str], object]] = [*(named for named, _ in NAMERS), partial(identifier, what="message id")]
    for refusing in refusals:
        with pytest.raises(ValueError, match="…") as refused:
            refusing(text)
        shown = re.search(r"(['\"].*)…", str(refused.value))
        assert shown
        assert len(shown[1]) < 60
        assert "\n" not in str(refused.value)
