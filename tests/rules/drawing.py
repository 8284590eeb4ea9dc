"""Random messages, trees and rules, and trees as text. Few names and values are used, so that rules match often."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from sbredis.rules import Constant, CorrelationFilter, FalseFilter, Rule, SqlAction, SqlFilter, TrueFilter
from sbredis.rules._syntax import (
    AllOf,
    AnyOf,
    Arithmetic,
    Compare,
    Exists,
    Expression,
    IsNull,
    Like,
    Literally,
    Lookup,
    NewId,
    Not,
    Parameter,
    Predicate,
    PropertyReference,
    Remove,
    SetTo,
    Sign,
    Statement,
    SyntaxNode,
    Within,
)

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ID = UUID(int=7)
PARAMETERS: dict[str, Constant] = {
    "one": 1,
    "@Noon": NOON,
    "hour": timedelta(hours=1),
    "id": ID,
    "@raw": b"r",
    "none": None,
    "word": "red",
    "exact": Decimal("2.5"),
}
NAMES = ("color", "Price", "flag", "odd name", "q]\"'")
SYSTEM_NAMES = ("Label", "subject", "SessionId", "SequenceNumber", "EnqueuedTimeUtc", "To", "Nonsense")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 1.0, -1, 2, 2.5, 2**63 - 1, 2**53 + 1, float(2**53), "red", "r%", "Red", "", "1"),
    *("Price", "sys.Label", "sys.Nonsense", NOON, NOON.replace(tzinfo=None), NOON + timedelta(hours=1), ID, b"r", [1]),
    *({"a": 1}, float("nan"), float("inf"), "%", "\\", 2**64 - 1, Decimal(1), Decimal("2.50"), Decimal("1E+400")),
    *(Decimal("NaN"), Decimal("-Infinity")),
)

values = st.sampled_from(VALUES)
numbers = st.sampled_from([0, 1, 1.0, 2, -3, 2.5, 7])
all_numbers = numbers | st.sampled_from([Decimal(2), Decimal("2.5"), Decimal("0.1"), 2**64 - 1])
messages = st.tuples(
    st.fixed_dictionaries(
        {},
        optional={
            "label": st.sampled_from([None, "red", "", "r%"]),
            "sessionid": st.sampled_from(["red", "1"]),
            "sequencenumber": st.sampled_from([1, 2]),
            "enqueuedtimeutc": st.sampled_from([NOON, NOON + timedelta(hours=1)]),
        },
    ),
    st.builds(
        operator.or_,
        st.fixed_dictionaries({}, optional={"Price": all_numbers, "color": st.sampled_from(["red", "Red", "r%"])}),
        st.dictionaries(st.sampled_from([*NAMES, "COLOR", "price"]), values, max_size=3),
    ),
)

constants = st.builds(
    Literally,
    st.sampled_from([None, True, False, 0, 1, -1, 2, -(2**63), 2.5, 1.0, 1e300, "red", "r%", "", "it's", "1"]),
)
properties = st.builds(PropertyReference, st.just(False), st.sampled_from(NAMES), st.just(0)) | st.builds(
    PropertyReference, st.just(True), st.sampled_from(SYSTEM_NAMES), st.just(0)
)
parameters = st.builds(Parameter, st.sampled_from([name.strip("@").lower() for name in PARAMETERS]), st.just(0))
simple: st.SearchStrategy[Expression] = st.one_of(properties, properties, constants, parameters, st.just(NewId()))


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    sums = st.lists(st.tuples(st.sampled_from("+-"), inner, st.just(0)), min_size=1, max_size=2)
    products = st.lists(st.tuples(st.sampled_from("*/%"), inner, st.just(0)), min_size=1, max_size=2)
    return st.one_of(
        st.builds(Sign, st.sampled_from("+-"), inner, st.just(0)).filter(lambda sign: not _number(sign.operand)),
        st.builds(Arithmetic, inner, (sums | products).map(tuple)),
        st.builds(Lookup, inner, st.just(0)).filter(lambda lookup: not _text(lookup.name)),
    )


def _number(node: Expression) -> bool:
    return isinstance(node, Literally) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _text(node: Expression) -> bool:
    return isinstance(node, Literally) and isinstance(node.value, str)


functions: st.SearchStrategy[Lookup | NewId] = st.just(NewId()) | st.builds(
    Lookup, simple.filter(lambda name: not _text(name)), st.just(0)
)
expressions = simple | st.recursive(simple, _larger, max_leaves=4)
sums = st.sampled_from([Literally(1), Literally(2), Literally(2.5), Literally(-3)]) | st.builds(
    Arithmetic,
    st.just(PropertyReference(False, "price", 0)),
    st.tuples(st.tuples(st.sampled_from("+-*/%"), numbers.filter(bool).map(Literally), st.just(0))),
)
prices = st.just(PropertyReference(False, "price", 0))
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
orders = st.builds(Compare, signs, prices, sums) | st.builds(Compare, signs, sums, prices)
patterns = st.builds(Literally, st.sampled_from(["red", "r%", "_e_", "%", "R\\%", "", "%1%"])) | properties
escapes = st.none() | st.builds(Literally, st.sampled_from(["\\", "r"])) | properties
equalities = st.builds(Compare, st.just("="), properties, constants | parameters)
comparisons: st.SearchStrategy[Predicate] = st.one_of(
    equalities,
    equalities,
    orders,
    st.builds(Compare, st.just("="), constants, properties),
    st.builds(Compare, signs, expressions, expressions),
    st.builds(Within, expressions, st.lists(expressions, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, expressions, patterns, escapes, st.just(0)),
    st.builds(Exists, properties),
    st.builds(IsNull, properties | functions),
)
chains = st.lists(comparisons, min_size=2, max_size=4).map(tuple)
predicates: st.SearchStrategy[Predicate] = st.recursive(
    comparisons | st.builds(AllOf, chains),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(AllOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
targets = properties.filter(lambda target: not target.system) | st.builds(
    PropertyReference, st.just(True), st.sampled_from(["Label", "sessionid", "TO"]), st.just(0)
)
statements: st.SearchStrategy[list[Statement]] = st.lists(
    st.builds(SetTo, targets, expressions) | st.builds(Remove, targets), min_size=1, max_size=4
)

# -- trees as text -----------------------------------------------------------------------------------------------------


def as_text(node: SyntaxNode) -> str:  # noqa: C901 -- a line for each kind of node
    """Return a tree as text with the same meaning."""
    match node:
        case Literally(None):
            return "NULL"
        case Literally(bool(value)):
            return str(value).upper()
        case Literally(str(value)):
            return "'" + value.replace("'", "''") + "'"
        case Literally(value):
            return repr(value)
        case PropertyReference(system, name, _):
            scope = "sys." if system else ""
            return scope + (name if name.isalpha() else "[" + name.replace("]", "]]") + "]")
        case Parameter(name, _):
            return f"@{name}"
        case NewId():
            return "newid()"
        case Lookup(name, _):
            return f"property({as_text(name)})"
        case Sign(sign, operand, _):
            return f"{sign}{parenthesised(operand)}"
        case Arithmetic(first, rest):
            return parenthesised(first) + "".join(f" {sign} {parenthesised(operand)}" for sign, operand, _ in rest)
        case Compare(comparison, left, right):
            return f"{as_text(left)} {comparison} {as_text(right)}"
        case Within(operand, options):
            return f"{as_text(operand)} IN ({', '.join(map(as_text, options))})"
        case Like(operand, pattern, escape, _):
            end = "" if escape is None else f" ESCAPE {as_text(escape)}"
            return f"{as_text(operand)} LIKE {as_text(pattern)}{end}"
        case Exists(operand):
            return f"EXISTS({as_text(operand)})"
        case IsNull(operand):
            return f"{as_text(operand)} IS NULL"
        case Not(operand):
            return f"NOT {parenthesised(operand)}"
        case AllOf(parts):
            return " AND ".join(map(parenthesised, parts))
        case AnyOf(parts):
            return " OR ".join(map(parenthesised, parts))
        case _:
            raise AssertionError(node)


def parenthesised(node: SyntaxNode) -> str:
    """Return a tree as text, in parentheses if another operator could split it."""
    return f"({as_text(node)})" if isinstance(node, Sign | Arithmetic | Not | AllOf | AnyOf) else as_text(node)


def action_as_text(action: list[Statement]) -> str:
    return "; ".join(
        f"SET {as_text(one.target)} = {as_text(one.value)}"
        if isinstance(one, SetTo)
        else f"REMOVE {as_text(one.target)}"
        for one in action
    )


# -- rules -------------------------------------------------------------------------------------------------------------

sql_filters = (
    predicates.map(as_text).filter(lambda text: len(text) <= 1024).map(lambda text: SqlFilter(text, PARAMETERS))
)
correlation_filters = st.builds(
    CorrelationFilter,
    subject=st.sampled_from([None, "red", "", "r%"]),
    session_id=st.sampled_from([None, None, "red", "1"]),
    properties=st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from([True, 1, 1.0, "red", "1", NOON, ID, b"r", Decimal(1)]), max_size=2
    ),
).filter(lambda given: given.subject is not None or given.session_id is not None or bool(given.properties))
unusable = st.just(SqlFilter("color = 'red' AND color RESEMBLES 'red'"))
filters = st.one_of(
    sql_filters, sql_filters, correlation_filters, st.just(TrueFilter()), st.just(FalseFilter()), unusable
)
actions = st.sampled_from([None, None, None, None, SqlAction("SET done = TRUE"), SqlAction("SET done")])


@st.composite
def topics(draw: st.DrawFn) -> list[tuple[list[Rule], bool]]:
    """Draw the rules of the subscriptions of a topic."""
    return [
        ([Rule(f"rule {number}", draw(filters), draw(actions)) for number in range(draw(st.integers(0, 4)))], flag)
        for flag in draw(st.lists(st.booleans(), max_size=3))
    ]


@st.composite
def related_topics(draw: st.DrawFn) -> list[tuple[list[Rule], bool]]:
    """Draw the rules of subscriptions whose filters combine a few shared conditions at various places."""
    pool = st.sampled_from(draw(st.lists(predicates, min_size=1, max_size=4)))
    several = st.lists(pool, min_size=2, max_size=3).map(tuple)
    together = st.one_of(pool, pool, st.builds(Not, pool), st.builds(AnyOf, several), st.builds(AllOf, several))
    put = st.one_of(
        together, st.builds(AllOf, st.lists(together | equalities, min_size=2, max_size=3).map(tuple)), together
    )
    blanks = st.sampled_from(["", " ", "\n", "\n   "])
    texts = st.builds(operator.add, blanks, put.map(as_text)).filter(lambda text: len(text) <= 1024)
    given = texts.map(lambda text: SqlFilter(text, PARAMETERS))
    return [
        ([Rule(f"rule {number}", draw(given), draw(actions)) for number in range(draw(st.integers(1, 4)))], flag)
        for flag in draw(st.lists(st.booleans(), min_size=1, max_size=3))
    ]
