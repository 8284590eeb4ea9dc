"""Tests of the derivation of synchronous scenarios from asynchronous ones (derivation.py)."""

from __future__ import annotations

import ast
import inspect
import traceback

import pytest

from tests.offenders import for_each
from tests.samples.by_hand import BY_HAND, REASONS
from tests.samples.derivation import MODULES, NAMES, asynchronous_source, derived, synchronous_source, without
from tests.samples.differences import rows_named_in

ASYNCHRONOUS = '''"""Messages, as with the asynchronous client of azure.servicebus."""

import asyncio

from sbredis.aio import ServiceBusClient  # row: imports
from sbredis.aio.management import ServiceBusAdministrationClient  # row: imports
from tests.waiting import eventually


async def scenario(url: str) -> object:
    """A text may say async and await, and sbredis.aio."""
    async with ServiceBusClient(url) as client, client.get_queue_receiver("q") as receiver:
        first = await receiver.__anext__()  # await: kept in a comment
        rest = [str(message) async for message in receiver]
        text = "await asynchronous eventually"
        await eventually(lambda: (first, rest))
        return (await receiver.receive_messages())[0], text


async def gathered(url: str) -> None:
    await asyncio.gather(scenario(url), scenario(url))
'''

SYNCHRONOUS = '''"""Messages, as with the synchronous client of azure.servicebus."""



from sbredis import ServiceBusClient  # row: imports
from sbredis.management import ServiceBusAdministrationClient  # row: imports
from tests.waiting import wait_until


def scenario(url: str) -> object:
    """A text may say async and await, and sbredis.aio."""
    with ServiceBusClient(url) as client, client.get_queue_receiver("q") as receiver:
        first = receiver.next()  # await: kept in a comment
        rest = [str(message) for message in receiver]
        text = "await asynchronous eventually"
        wait_until(lambda: (first, rest))
        return (receiver.receive_messages())[0], text




'''


def test_the_derivation_makes_only_the_necessary_changes() -> None:
    assert without(derived(ASYNCHRONOUS), {"gathered": None}) == SYNCHRONOUS


def test_derived_code_keeps_its_line_numbers() -> None:
    source = derived('"""A.\n\nB of the asynchronous client.\n"""\n\n\nasync def f() -> None:\n    raise KeyError\n')
    assert source == '"""A.\n\nB of the synchronous client.\n"""\n\n\ndef f() -> None:\n    raise KeyError\n'
    made: dict[str, object] = {}
    exec(compile(source, "derived", "exec"), made)  # noqa: S102  # it is our own text
    call = made["f"]
    assert callable(call)
    with pytest.raises(KeyError) as raised:
        call()
    assert traceback.extract_tb(raised.value.__traceback__)[-1].lineno == 8


@pytest.mark.slow
@for_each("module", MODULES)
def test_derived_code_has_no_asynchronous_parts(module: str) -> None:
    names = {node.id for node in ast.walk(ast.parse(synchronous_source(module))) if isinstance(node, ast.Name)}
    attributes = {
        node.attr for node in ast.walk(ast.parse(synchronous_source(module))) if isinstance(node, ast.Attribute)
    }
    assert names & {"asyncio", "anyio", *NAMES} == set()
    assert attributes & {"aio", *NAMES} == set()
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert not any(isinstance(node, waiting) for node in ast.walk(ast.parse(synchronous_source(module))))


@for_each("name", [f"{module}.{name}" for module, scenarios in BY_HAND.items() for name in scenarios])
def test_a_scenario_written_by_hand_has_a_reason_and_names_the_rows_of_the_asynchronous_one(name: str) -> None:
    module, _, function = name.partition(".")
    assert REASONS[name]
    tree = ast.parse(asynchronous_source(module))
    (node,) = (each for each in tree.body if isinstance(each, ast.AsyncFunctionDef) and each.name == function)
    there = ast.get_source_segment(asynchronous_source(module), node)
    assert there is not None
    assert "asyncio" in there, "it could be derived"
    assert rows_named_in(inspect.getsource(BY_HAND[module][function])) == rows_named_in(there)


def test_every_reason_belongs_to_a_scenario() -> None:
    assert set(REASONS) == {f"{module}.{name}" for module, scenarios in BY_HAND.items() for name in scenarios}
