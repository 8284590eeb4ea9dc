"""Who knows azure.servicebus is at home: its sample scenarios, with the lines marked that had to differ."""

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

from sbredis.aio.entities._definitions import QUEUES
from sbredis.aio.management import ServiceBusAdministrationClient
from tests.samples.differences import ROWS, rows_named_in
from tests.samples.outcomes import SAMPLES, Sample
from tools.repository import ROOT

MODULES = sorted({sample.module for sample in SAMPLES})
KINDS = ("asynchronous", "synchronous")
QUEUE = "orders"

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)


def of(kind: str, module: str) -> ModuleType:
    """The scenarios of one kind about one thing."""
    return import_module(f"tests.samples.{kind}.{module}")


async def prepare(url: str, sample: Sample) -> None:
    """The queue that a scenario finds."""
    kept = QUEUES.check("create_queue", QUEUE, sample.queue)
    settings = kept.settings if sample.lock is None else replace(kept.settings, lock_duration=sample.lock)
    async with ServiceBusAdministrationClient(url, partition_count=4) as administration:
        await administration.get_namespace_properties()
        await administration._connection.namespace.create_entity(
            QUEUE, settings, partitioned=kept.partitioned, properties=kept.properties
        )


@contextmanager
def warned(sample: Sample) -> Iterator[None]:
    """The warning that a scenario gets, and no other."""
    if sample.warns is None:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [sample.warns in str(warning.message) for warning in caught] == [True]


@every_sample
@pytest.mark.anyio
async def test_an_asynchronous_scenario_comes_to_what_it_should(sample: Sample, url: str) -> None:
    await prepare(url, sample)
    scenario: Any = getattr(of("asynchronous", sample.module), sample.name)
    with warned(sample):
        assert await scenario(url, QUEUE) == sample.outcome


@every_sample
@pytest.mark.parametrize("target", ["server"], indirect=True)  # what is below the façade has been seen on all of them
def test_a_synchronous_scenario_comes_to_what_it_should(sample: Sample, url: str) -> None:
    asyncio.run(prepare(url, sample))
    scenario: Any = getattr(of("synchronous", sample.module), sample.name)
    with warned(sample):
        assert scenario(url, QUEUE) == sample.outcome


def scenarios(module: ModuleType) -> list[str]:
    """Its functions that take a connection string and a queue."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and list(inspect.signature(value).parameters) == ["connection_string", "queue_name"]
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", MODULES)
def test_every_scenario_is_run(kind: str, module: str) -> None:
    assert scenarios(of(kind, module)) == [sample.name for sample in SAMPLES if sample.module == module]


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_of_scenarios_is_run(kind: str) -> None:
    assert sorted(path.stem for path in (ROOT / "tests/samples" / kind).glob("*.py")) == MODULES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", MODULES)
def test_every_row_that_a_scenario_names_is_in_the_table(kind: str, module: str) -> None:
    named = rows_named_in(inspect.getsource(of(kind, module)))
    assert [name for name in named if name not in ROWS] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("module", MODULES)
def test_every_import_of_sbredis_is_marked(kind: str, module: str) -> None:
    lines = inspect.getsource(of(kind, module)).splitlines()
    assert [
        line for line in lines if line.startswith(("from sbredis", "import sbredis")) and "# row: " not in line
    ] == []


@pytest.mark.parametrize("module", MODULES)
def test_both_kinds_differ_from_azure_in_the_same_rows(module: str) -> None:
    asynchronous, synchronous = (rows_named_in(inspect.getsource(of(kind, module))) for kind in KINDS)
    assert set(asynchronous) == set(synchronous)


def test_no_two_rows_have_one_name() -> None:
    assert sorted(set(ROWS)) == sorted(ROWS)
