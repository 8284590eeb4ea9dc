"""The parser of filters and actions: one method for each rule of the grammar, from the loosest binding to the tightest.

Parentheses may contain a condition or a value, and the parser can decide only later which of the two it has read. So
the same methods parse both, and each operator checks the kind of its operands.
"""

from __future__ import annotations

from typing import NoReturn, cast

from sbredis.rules._like import PatternError, matcher
from sbredis.rules._message_view import SETTABLE, canonical
from sbredis.rules._syntax import (
    AllOf,
    AnyOf,
    Arithmetic,
    Compare,
    Comparison,
    Exists,
    Expression,
    IsNull,
    Like,
    Literally,
    Lookup,
    NewId,
    Not,
    Operator,
    Parameter,
    Predicate,
    PropertyReference,
    Remove,
    SetTo,
    Sign,
    Statement,
    SyntaxNode,
    Within,
    reference,
)
from sbredis.rules._tokens import Sort, Token, tokenize, wrong
from sbredis.rules._values import LARGEST, SMALLEST

__all__ = ["DEEPEST", "RuleParser"]

DEEPEST = 32
"""The largest depth of nested parentheses, NOT and signs, so that no text can exhaust the stack."""

_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_AFTER_VALUE = (*_COMPARISONS, "IN", "LIKE", "IS", "NOT")
_ARITHMETIC = ("+", "-", "*", "/", "%")
_VALUE = ("a value", "(")
_FUNCTIONS = ("newid", "property", "p")
_SETTABLE = tuple(f"sys.{name}" for name in SETTABLE.values())
_NAMES = (Sort.NAME, Sort.DELIMITED)
_VALUES = (*_NAMES, Sort.TEXT, Sort.INTEGER, Sort.DECIMAL, Sort.PARAMETER)


class RuleParser:
    """Parses one text. After the parsing, ``parameters`` are the parameters that the text uses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._number = 0
        self._depth = 0
        self.parameters: list[Parameter] = []

    def filter(self) -> Predicate:
        """Parse the whole text as a filter."""
        predicate = self._condition(self._alternatives())
        if self._now.sort is not Sort.END:
            self._refuse("AND", "OR", "the end")
        return predicate

    def action(self) -> list[Statement]:
        """Parse the whole text as the statements of an action."""
        statements: list[Statement] = []
        while True:
            if not statements or self._takes(";"):
                expected: tuple[str, ...] = ("SET", "REMOVE")
            else:
                expected = (
                    *(_ARITHMETIC if isinstance(statements[-1], SetTo) else ()),
                    ";",
                    "SET",
                    "REMOVE",
                    "the end",
                )
            if statements and self._now.sort is Sort.END:
                return statements
            if self._takes("SET"):
                target = self._target()
                self._need("=")
                statements.append(SetTo(target, self._operand()))
            elif self._takes("REMOVE"):
                statements.append(Remove(self._target()))
            else:
                self._refuse(*expected)

    # -- words ---------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._number]

    def _is(self, *words: str) -> bool:
        return self._now.text in words and self._now.sort in {Sort.KEYWORD, Sort.SIGN}

    def _takes(self, *words: str) -> bool:
        if not self._is(*words):
            return False
        self._number += 1
        return True

    def _take(self) -> Token:
        self._number += 1
        return self._tokens[self._number - 1]

    def _need(self, *words: str) -> None:
        if not self._takes(*words):
            self._refuse(*words)

    def _refuse(self, *expected: str, at: Token | None = None, found: str = "") -> NoReturn:
        token = at or self._now
        raise wrong(self._text, token.at, f"found {found or token.found}", expected)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            at = self._tokens[self._number - 1].at
            raise wrong(self._text, at, f"parentheses, NOT and signs are nested more than {DEEPEST} deep")

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _condition(self, node: SyntaxNode) -> Predicate:
        """Return a node as a condition; refuse a value, because a comparison must follow it."""
        if isinstance(node, Predicate):
            return node
        return self._refuse(*_AFTER_VALUE)

    def _alternatives(self) -> SyntaxNode:
        first = self._conjunction()
        if not self._is("OR"):
            return first
        parts = [self._condition(first)]
        while self._takes("OR"):
            parts.append(self._condition(self._conjunction()))
        return AnyOf(tuple(parts))

    def _conjunction(self) -> SyntaxNode:
        first = self._negation()
        if not self._is("AND"):
            return first
        parts = [self._condition(first)]
        while self._takes("AND"):
            parts.append(self._condition(self._negation()))
        return AllOf(tuple(parts))

    def _negation(self) -> SyntaxNode:
        if self._takes("NOT"):
            self._deeper()
            operand = self._condition(self._negation())
            self._depth -= 1
            return Not(operand)
        if self._takes("EXISTS"):
            self._need("(")
            found = self._property(self._name())
            self._need(")")
            return Exists(found)
        if self._now.sort not in _VALUES and not self._is("(", "+", "-", "TRUE", "FALSE", "NULL"):
            self._refuse(*_VALUE, "NOT", "EXISTS")
        return self._comparison()

    def _comparison(self) -> SyntaxNode:
        start = self._now
        left = self._sum()
        if isinstance(left, Predicate):
            return left
        if self._is(*_COMPARISONS):
            comparison = cast("Comparison", self._take().text)
            return Compare(comparison, left, self._operand())
        if self._is("IS"):
            return self._is_null(left, start)
        negated = self._takes("NOT")
        found: Predicate
        if self._takes("IN"):
            found = self._within(left)
        elif self._is("LIKE"):
            found = self._like(left)
        elif negated:
            self._refuse("IN", "LIKE")
        else:
            return left
        return Not(found) if negated else found

    def _is_null(self, left: Expression, start: Token) -> Predicate:
        if not isinstance(left, PropertyReference | Lookup | NewId):
            self._refuse("a property or a function before IS", at=start)
        self._take()
        negated = self._takes("NOT")
        self._need("NULL") if negated else self._need("NULL", "NOT")
        return Not(IsNull(left)) if negated else IsNull(left)

    def _within(self, left: Expression) -> Within:
        self._need("(")
        options = [self._operand()]
        while self._takes(","):
            options.append(self._operand())
        if not self._takes(")"):
            self._refuse(*_ARITHMETIC, ",", ")")
        return Within(left, tuple(options))

    def _like(self, left: Expression) -> Like:
        at = self._take().at
        pattern_at = self._now.at
        pattern, escape = self._operand(), None
        if self._takes("ESCAPE"):
            escape_at = self._now.at
            escape = self._operand()
            if isinstance(escape, Literally) and not (isinstance(escape.value, str) and len(escape.value) == 1):
                raise wrong(self._text, escape_at, "ESCAPE needs text of one character")
        if isinstance(pattern, Literally) and (escape is None or isinstance(escape, Literally)):
            if not isinstance(pattern.value, str):
                raise wrong(self._text, pattern_at, "a pattern must be text")
            try:
                matcher(pattern.value, cast("str", escape.value) if escape else None)
            except PatternError as error:
                raise wrong(self._text, pattern_at, str(error)) from None
        return Like(left, pattern, escape, at)

    # -- values --------------------------------------------------------------------------------------------------------

    def _operand(self) -> Expression:
        start = self._now
        return self._value(self._sum(), start)

    def _value(self, node: SyntaxNode, start: Token) -> Expression:
        if isinstance(node, Expression):
            return node
        return self._refuse("a value", at=start, found="a condition")

    def _sum(self) -> SyntaxNode:
        first = self._product()
        if isinstance(first, Predicate) or not self._is("+", "-"):
            return first
        rest: list[tuple[Operator, Expression, int]] = []
        while self._is("+", "-"):
            sign = self._take()
            start = self._now
            rest.append((cast("Operator", sign.text), self._value(self._product(), start), sign.at))
        return Arithmetic(first, tuple(rest))

    def _product(self) -> SyntaxNode:
        first = self._signed()
        if isinstance(first, Predicate) or not self._is("*", "/", "%"):
            return first
        rest: list[tuple[Operator, Expression, int]] = []
        while self._is("*", "/", "%"):
            sign = self._take()
            start = self._now
            rest.append((cast("Operator", sign.text), self._value(self._signed(), start), sign.at))
        return Arithmetic(first, tuple(rest))

    def _signed(self) -> SyntaxNode:
        if not self._is("+", "-"):
            return self._primary()
        sign = self._take()
        minus = sign.text == "-"
        if self._now.sort is Sort.INTEGER:
            return Literally(-self._integer(-SMALLEST) if minus else self._integer())
        if self._now.sort is Sort.DECIMAL:
            number = float(self._take().text)
            return Literally(-number if minus else number)
        self._deeper()
        start = self._now
        operand = self._value(self._signed(), start)
        self._depth -= 1
        return Sign("-" if minus else "+", operand, sign.at)

    def _integer(self, largest: int = LARGEST) -> int:
        token = self._take()
        number = int(token.text)
        if number > largest:
            raise wrong(self._text, token.at, "the number does not fit into 64 bits")
        return number

    def _primary(self) -> SyntaxNode:
        token = self._now
        if self._takes("("):
            return self._enclosed()
        if token.sort is Sort.INTEGER:
            return Literally(self._integer())
        if self._takes("TRUE", "FALSE"):
            return Literally(token.text == "TRUE")
        if self._takes("NULL"):
            return Literally(None)
        if token.sort in _NAMES:
            return self._named(self._take())
        if token.sort not in _VALUES:
            self._refuse(*_VALUE)
        self._take()
        if token.sort is Sort.TEXT:
            return Literally(token.text)
        if token.sort is Sort.DECIMAL:
            return Literally(float(token.text))
        parameter = Parameter(token.text.lower(), token.at)
        self.parameters.append(parameter)
        return parameter

    def _enclosed(self) -> SyntaxNode:
        self._deeper()
        node = self._alternatives()
        if not self._takes(")"):
            if isinstance(node, Predicate):
                self._refuse("AND", "OR", ")")
            self._refuse(*_ARITHMETIC, *_AFTER_VALUE, ")")
        self._depth -= 1
        return node

    def _named(self, name: Token) -> Expression:
        if name.sort is not Sort.NAME or not self._is("("):
            return self._property(name)
        function = name.text.lower()
        if function not in _FUNCTIONS:
            self._refuse(*_FUNCTIONS, at=name)
        self._take()
        if function == "newid":
            self._need(")")
            return NewId()
        self._deeper()
        argument = self._operand()
        if not self._takes(")"):
            self._refuse(*_ARITHMETIC, ")")
        self._depth -= 1
        if isinstance(argument, Literally) and isinstance(argument.value, str):
            return reference(argument.value, name.at)
        return Lookup(argument, name.at)

    # -- properties ----------------------------------------------------------------------------------------------------

    def _name(self) -> Token:
        if self._now.sort not in _NAMES:
            self._refuse("a name")
        return self._take()

    def _property(self, name: Token) -> PropertyReference:
        if not self._is("."):
            return PropertyReference(False, name.text, name.at)
        scope = name.text.lower() if name.sort is Sort.NAME else ""
        if scope not in {"sys", "user"}:
            self._refuse("sys", "user", at=name)
        self._take()
        return PropertyReference(scope == "sys", self._name().text, name.at)

    def _target(self) -> PropertyReference:
        """Parse a property that an action changes."""
        token = self._name()
        target = self._property(token)
        if target.system and canonical(target.name) not in SETTABLE:
            self._refuse("a property of the application", *_SETTABLE, at=token, found=f"sys.{target.name}")
        return target
