"""Read the signature of a handler, and the markers in it: where the value of each parameter comes from."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from sbredis._quoting import type_name
from sbredis.codec import UnsupportedTypeError, check_type
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._checks import require_one_of, require_text
from sbredis.workers.declaring._context import Context, SyncContext

__all__ = [
    "Dependency",
    "Depends",
    "HandlerParameter",
    "Property",
    "Scope",
    "Signature",
    "function_name",
    "hides_coroutine",
    "is_coroutine_function",
    "read_signature",
]

Scope = Literal["app", "session", "message"]
"""The life of a dependency: as long as the worker, the lock on a session, or the handling of one message."""
Kind = Literal["body", "message", "context", "property", "dependency"]
How = Literal["call", "coroutine", "generator", "async generator"]
_WIDTH: dict[Scope, int] = {"app": 2, "session": 1, "message": 0}
_NONE = inspect.Parameter.empty
_PROPERTY_TYPES = frozenset({str, int, bool, float, bytes, UUID, datetime})


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter that is made by a function: ``Annotated[Db, Depends(get_db)]``.

    ``call`` is a function, a coroutine function, or a generator function of either kind. What a generator yields is
    the value, and the code after its ``yield`` cleans up at the end of the ``scope``. The function may have parameters
    of the same kinds as a handler, except a body. Within a scope it is called once.
    """

    call: Callable[..., Any]
    scope: Scope = "message"

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise TypeError(f"Depends takes a function, not {type(self.call).__name__}")
        require_one_of("scope", self.scope, get_args(Scope))


@dataclass(frozen=True, slots=True)
class Property:
    """Marks a parameter that gets an application property of the message: ``Annotated[str, Property("tenant")]``.

    If the message has no such property, the parameter gets its default. Without a default, and for a property of
    another type, the message is dead-lettered.
    """

    name: str

    def __post_init__(self) -> None:
        require_text("the name of a property", self.name)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A function that makes a value for a parameter, with the values that it needs itself.

    The dependencies of several handlers are equal if their functions and scopes are, so handlers share the values of
    the wider scopes.
    """

    call: Callable[..., Any]
    scope: Scope
    how: How = field(compare=False)
    parameters: tuple[HandlerParameter, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class HandlerParameter:
    """A parameter of a handler or dependency, and the source of its value."""

    name: str
    kind: Kind
    named: bool
    """Whether the parameter can only be given by its name."""
    type: Any = Any
    default: Any = _NONE
    property_name: str = ""
    dependency: Dependency | None = None

    @property
    def has_default(self) -> bool:
        """Whether the parameter has a default."""
        return self.default is not _NONE


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a handler."""

    parameters: tuple[HandlerParameter, ...]
    body: HandlerParameter | None
    injects: bool
    """Whether the handler needs dependencies or properties."""
    wants_context: bool
    """Whether the handler or one of its dependencies has a context."""


def read_signature(
    function: Callable[..., Any],
    *,
    batch: bool = False,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    names: Mapping[str, Any] | None = None,
    context: type[Context | SyncContext] | None = None,
    because: str = "",
) -> Signature:
    """Return where the values of a handler's parameters come from.

    With ``batch``, the handler takes lists of bodies and of messages. ``overrides`` maps the functions of dependencies
    to the functions that take their place. ``names`` has names of annotations that the module does not define: those of
    the function in which the handler was defined. ``context`` is the context that the handler gets, and ``because``
    says why; without it, any context is accepted.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` and names the parameter, if a value cannot be had.
    """
    reading = _SignatureReader(function_name(function), overrides or {}, names or {}, context, because, batch=batch)
    parameters = reading.parameters(function, "message", in_handler=True)
    bodies = [each for each in parameters if each.kind == "body"]
    if len(bodies) > 1:
        listed = " and ".join(repr(each.name) for each in bodies)
        raise reading.refused(
            f"it has {len(bodies)} parameters for the body, {listed}. Mark the others: Annotated[…, Depends(…)] or "
            "Annotated[…, Property(…)]."
        )
    return Signature(
        parameters,
        bodies[0] if bodies else None,
        any(each.kind in {"dependency", "property"} for each in parameters),
        reading.wants_context,
    )


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function, for errors and logs."""
    called = _called(function)
    return getattr(called, "__qualname__", None) or type(called).__qualname__


@dataclass(slots=True)
class _SignatureReader:
    """The reading of one handler's signature, together with the functions of its dependencies."""

    handler: str
    overrides: Mapping[Callable[..., Any], Callable[..., Any]]
    names: Mapping[str, Any]
    context: type[Context | SyncContext] | None
    because: str
    batch: bool
    wants_context: bool = False
    _known: dict[tuple[Callable[..., Any], Scope], Dependency] = field(
        default_factory=dict[tuple[Callable[..., Any], Scope], Dependency]
    )
    _open: list[Callable[..., Any]] = field(default_factory=list[Callable[..., Any]])
    """The functions whose parameters are being read, from the outside in."""

    def refused(self, why: str) -> WorkerSetupError:
        return WorkerSetupError(f"The handler {self.handler} cannot be called: {why}")

    def parameters(
        self, function: Callable[..., Any], scope: Scope, *, in_handler: bool = False
    ) -> tuple[HandlerParameter, ...]:
        hints = self._hints(function)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise self.refused(f"{function_name(function)} has no signature that can be read.") from error
        found: list[HandlerParameter] = []
        bound = _bound(function)
        for name, declared in signature.parameters.items():
            if name in bound:
                continue
            where = f"its parameter {name!r}" if in_handler else f"the parameter {name!r} of {function_name(function)}"
            if declared.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
                if in_handler:
                    raise self.refused(f"{where} takes any number of values. Name each parameter.")
                continue
            made = self._parameter(declared, hints.get(name, Any), where, scope, in_handler=in_handler)
            if made is not None:
                found.append(made)
        return tuple(found)

    def _parameter(
        self, declared: inspect.Parameter, hint: Any, where: str, scope: Scope, *, in_handler: bool
    ) -> HandlerParameter | None:
        name, default = declared.name, declared.default
        named = declared.kind is inspect.Parameter.KEYWORD_ONLY
        if declared.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise self.refused(f"{where} can only be given by its position. Remove the '/' from its signature.")
        marks = self._marks(hint, default, where)
        bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if marks and isinstance(marks[0], Depends):
            dependency = self._dependency(marks[0], where, scope)
            return HandlerParameter(name, "dependency", named, bare, dependency=dependency)
        if scope == "message" and marks:
            if self.batch:
                raise self.refused(f"{where} is a property of one message, but the handler takes a batch.")
            if not _is_property_type(bare):
                raise self.refused(f"{where} has the type {type_name(bare)}, which application properties cannot have.")
            return HandlerParameter(name, "property", named, bare, default, property_name=marks[0].name)
        if marks:
            raise self.refused(f"{where} is a property of a message, but the scope of the dependency is {scope!r}.")
        given = _listed(bare) if self.batch else bare
        if given is ServiceBusReceivedMessage:
            self._require_message_scope(where, scope, "a message")
            return HandlerParameter(name, "message", named, bare)
        if wanted := _contexts_in(bare):
            self._require_message_scope(where, scope, "the context of a message")
            self._require_context(wanted, where, in_handler=in_handler)
            self.wants_context = True
            return HandlerParameter(name, "context", named, bare)
        if not in_handler:
            if default is not _NONE:
                return None
            raise self.refused(f"{where} has no mark, so it has no value. Use Annotated[…, Depends(…)], or a default.")
        return self._body(name, bare, where, named=named)

    def _marks(self, hint: Any, default: Any, where: str) -> list[Any]:
        """Return the only mark of a parameter, if it has one."""
        said = getattr(hint, "__metadata__", ())
        for mark in (Depends, Property):
            if isinstance(default, mark) or any(each is mark for each in said):
                raise self.refused(f"{where} needs its mark in the annotation, as in Annotated[…, {mark.__name__}(…)].")
        marks = [mark for mark in said if isinstance(mark, (Depends, Property))]
        if len(marks) > 1:
            raise self.refused(f"{where} has several marks. Keep one.")
        return marks

    def _body(self, name: str, bare: Any, where: str, *, named: bool) -> HandlerParameter:
        as_type = bare
        if self.batch and bare is not Any:
            as_type = _listed(bare)
            if as_type is None:
                raise self.refused(
                    f"{where} must be a list, because the handler takes a batch: list[{type_name(bare)}]."
                )
        try:
            check_type(as_type)
        except UnsupportedTypeError as error:
            raise self.refused(f"{where} cannot be the body: {error}") from error
        return HandlerParameter(name, "body", named, as_type)

    def _require_message_scope(self, where: str, scope: Scope, what: str) -> None:
        if scope != "message":
            raise self.refused(f"{where} is {what}, but the scope of the dependency is {scope!r}.")

    def _require_context(self, wanted: frozenset[Any], where: str, *, in_handler: bool) -> None:
        if self.context is None or self.context in wanted:
            if type(None) in wanted:
                raise self.refused(f"{where} may be None, but a handler always has a context. Leave out None.")
            return
        other = "Context" if self.context is SyncContext else "SyncContext"
        whose = "the handler" if in_handler else "the handler, and so each of its dependencies,"
        both = "" if in_handler else ", or Context | SyncContext if handlers of both kinds need it"
        raise self.refused(
            f"{where} is a {other}, but {whose} gets a {self.context.__name__}, because {self.because}. Annotate it "
            f"with {self.context.__name__}{both}."
        )

    def _dependency(self, mark: Depends, where: str, scope: Scope) -> Dependency:
        if _WIDTH[mark.scope] < _WIDTH[scope]:
            raise self.refused(
                f"{where} has the scope {mark.scope!r}, which ends before the scope {scope!r} of the function that "
                "needs it."
            )
        call = self.overrides.get(mark.call, mark.call)
        known = self._known.get((call, mark.scope))
        if known is not None:
            return known
        if call in self._open:
            raise self.refused(f"{where} depends on itself.")
        if hides_coroutine(call):
            raise self.refused(
                f"{where} is made by {function_name(call)}, a plain function around a coroutine function: its value "
                "would be a coroutine that nothing awaits. Let its decorator make an async def."
            )
        self._open.append(call)
        parameters = self.parameters(call, mark.scope)
        self._open.pop()
        made = self._known[call, mark.scope] = Dependency(call, mark.scope, _how(call), parameters)
        return made

    def _hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        target = _target(function)
        if inspect.isclass(target):
            target = target.__init__
        try:
            return get_type_hints(target, localns=dict(self.names), include_extras=True)
        except NameError as error:
            raise self.refused(
                f"the annotation {error.name!r} is not defined in the module of {function_name(function)}. Import it "
                "there, outside of TYPE_CHECKING, or define it at the top of the module."
            ) from error
        except TypeError as error:
            raise self.refused(f"an annotation of {function_name(function)} is not a type: {error}") from error


def _listed(hint: Any) -> Any:
    """Return the type of the items of a list; ``None`` for another type."""
    if hint is list:
        return Any
    return get_args(hint)[0] if get_origin(hint) is list else None


def _contexts_in(hint: Any) -> frozenset[Any]:
    """Return the contexts that an annotation names, and the type of None; nothing if it names any other type."""
    alternatives = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    if not {Context, SyncContext}.intersection(each for each in alternatives if isinstance(each, type)):
        return frozenset()
    found = frozenset[Any](alternatives)
    return found if found <= {Context, SyncContext, type(None)} else frozenset()


def _is_property_type(hint: Any) -> bool:
    if get_origin(hint) in {Union, types.UnionType}:
        return all(each is type(None) or _is_property_type(each) for each in get_args(hint))
    return hint is Any or hint in _PROPERTY_TYPES


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether calling this function gives a coroutine."""
    return inspect.iscoroutinefunction(_target(function))


def hides_coroutine(function: Callable[..., Any]) -> bool:
    """Return whether this function is no coroutine function, but says that it wraps one (``functools.wraps``)."""
    if is_coroutine_function(function):
        return False
    return any(is_coroutine_function(inspect.unwrap(each)) for each in (_called(function), _target(function)))


def _bound(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters that partial functions give a value by keyword."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def _called(function: Callable[..., Any]) -> Any:
    """Return what is called behind partial functions."""
    called: Any = function
    while isinstance(called, functools.partial):
        called = called.func
    return called


def _target(function: Callable[..., Any]) -> Any:
    """Return the function that is called in the end, behind partial functions and callable objects."""
    target = _called(function)
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target).__call__
    return target


def _how(call: Callable[..., Any]) -> How:
    target = _target(call)
    if inspect.isasyncgenfunction(target):
        return "async generator"
    if inspect.isgeneratorfunction(target):
        return "generator"
    return "coroutine" if inspect.iscoroutinefunction(target) else "call"
