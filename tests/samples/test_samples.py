"""The sample scenarios of azure.servicebus run on sbredis. Each line that had to differ has a mark with the reason."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.entities import QUEUES
from tests.offenders import for_each
from tests.samples import by_hand
from tests.samples.derivation import MODULES, asynchronous_source, synchronous
from tests.samples.differences import ROWS, rows_named_in
from tests.samples.outcomes import SAMPLES, Sample

QUEUE = "orders"

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)


def asynchronous(module: str) -> ModuleType:
    """Return the module of asynchronous scenarios with this name."""
    return import_module(f"tests.samples.asynchronous.{module}")


async def prepare(url: str, sample: Sample) -> None:
    """Create the queue that a scenario uses."""
    kept = QUEUES.check("create_queue", QUEUE, sample.queue)
    settings = kept.settings if sample.lock is None else replace(kept.settings, lock_duration=sample.lock)
    async with ServiceBusAdministrationClient(url, slot_count=4) as administration:
        await administration.get_namespace_properties()
        await administration._connection.namespace.create_entity(
            QUEUE, settings, partitioned=kept.partitioned, properties=kept.properties
        )


@contextmanager
def warned(sample: Sample) -> Iterator[None]:
    """Check that a scenario causes its warning, and no other."""
    if sample.warns is None:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [sample.warns in str(warning.message) for warning in caught] == [True]


@pytest.mark.slow
@every_sample
# the synchronous scenarios run on a server and a cluster too
@pytest.mark.parametrize("target", ["memory"], indirect=True)
async def test_an_asynchronous_scenario_has_the_expected_result(sample: Sample, url: str) -> None:
    await prepare(url, sample)
    scenario: Any = getattr(asynchronous(sample.module), sample.name)
    with warned(sample):
        assert await scenario(url, QUEUE) == sample.outcome


@pytest.mark.long("the synchronous client is made from the asynchronous one, and its fundamentals are in make test")
@every_sample
@pytest.mark.parametrize("target", ["server"], indirect=True)
def test_a_synchronous_scenario_has_the_expected_result(sample: Sample, url: str) -> None:
    asyncio.run(prepare(url, sample))
    scenario: Any = getattr(synchronous(sample.module), sample.name)
    with warned(sample):
        assert scenario(url, QUEUE) == sample.outcome


def scenarios(module: ModuleType) -> list[str]:
    """Return the functions of a module that take a connection string and a queue."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and list(inspect.signature(value).parameters) == ["connection_string", "queue_name"]
    ]


@for_each("module", MODULES)
def test_every_scenario_is_run(module: str) -> None:
    expected = [sample.name for sample in SAMPLES if sample.module == module]
    assert scenarios(asynchronous(module)) == expected
    assert sorted(scenarios(synchronous(module))) == sorted(expected)


def test_every_module_of_scenarios_is_tested() -> None:
    assert sorted({sample.module for sample in SAMPLES}) == MODULES


@for_each("source", [asynchronous_source(module) for module in MODULES], ids=lambda source: source.partition("\n")[0])
def test_every_row_that_a_scenario_names_is_in_the_table(source: str) -> None:
    assert [name for name in rows_named_in(source) if name not in ROWS] == []


@for_each("source", [*map(asynchronous_source, MODULES), inspect.getsource(by_hand)], ids=lambda source: source[:50])
def test_every_import_of_sbredis_is_marked(source: str) -> None:
    imports = [line for line in source.splitlines() if line.startswith(("from sbredis", "import sbredis"))]
    assert [line for line in imports if "# row: " not in line] == []


def test_row_names_are_unique() -> None:
    assert sorted(set(ROWS)) == sorted(ROWS)
