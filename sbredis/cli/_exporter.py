"""``sbredis exporter``: the measures of all entities over HTTP, for Prometheus and KEDA."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING

import click

from sbredis._http_server import address_of, serving_answers
from sbredis._prometheus_text import CONTENT_TYPE
from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation
from sbredis.cli._parameters import DURATION
from sbredis.exceptions import ServiceBusError
from sbredis.operating import Measures, json_of, prometheus_of, read_entities

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["exporter"]

_SHIPPED = {"dashboard": "grafana-dashboard.json", "alerts": "prometheus-alerts.yaml", "scaled-object": "keda.yaml"}
_EVERY = timedelta(seconds=15)
_ENTITIES = "/entities"


@command("exporter", examples=[
    "sbredis exporter --listen 0.0.0.0:9109",
    "sbredis exporter --print dashboard > dashboard.json",
])  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:9109", help="Where to answer. [127.0.0.1:9109]")
@click.option("--every", type=DURATION, default=_EVERY, metavar="TIME", help="The time between two rounds. [15s]")
@click.option("--print", "shipped", type=click.Choice(list(_SHIPPED)), help="Print a file to start from, and end.")
async def exporter(invocation: Invocation, listen: str, every: timedelta, shipped: str | None) -> None:
    """Serve the measures of all entities over HTTP, for Prometheus and KEDA.

    /metrics has the text for Prometheus. /entities/NAME has the numbers of an entity as JSON, and /entities those of
    all; KEDA's scaler metrics-api reads them. Two short reads of each partition are made in each round, one entity
    after the other.

    --print shows a dashboard for Grafana, alert rules for Prometheus, or a ScaledObject for KEDA.
    """
    if shipped is not None:
        invocation.out.line(
            (files("sbredis.cli") / "shipped" / _SHIPPED[shipped]).read_text(encoding="utf-8").rstrip("\n")
        )
        return

    try:
        host, port = address_of(listen)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from error
    if every <= timedelta(0):
        raise click.BadParameter("must be longer than 0", param_hint="--every")
    async with invocation.administration() as administration:
        state = _LastRound()
        async with serving_answers(host, port, state.answer) as bound:
            invocation.out.remark(f"http://{host}:{bound}/metrics and http://{host}:{bound}{_ENTITIES}; Ctrl-C ends it")
            while True:
                await state.read(invocation, administration)
                await asyncio.sleep(every.total_seconds())


class _LastRound:
    """The measures of the last round."""

    def __init__(self) -> None:
        self._measures: Measures | None = None
        self._up = False
        self._problem = "no round has ended yet"
        self._missing = ""
        """The message that a part of the registry could not be read, if that is so."""

    async def read(self, invocation: Invocation, administration: ServiceBusAdministrationClient) -> None:
        """Read the entities. If that fails, say so once, and go on."""
        started = time.monotonic()
        try:
            namespace = await administration.get_namespace_properties()
            entities, incomplete = await read_entities(administration)
            maintained = await administration.has_maintenance()
        except ServiceBusError as error:
            if self._up or self._measures is None:
                invocation.out.remark(f"the servers cannot be read: {error}")
            self._up, self._problem = False, error.message
            return
        if not self._up and self._measures is not None:
            invocation.out.remark("the servers answer again")
        missing = () if incomplete is None else incomplete.unreachable_partitions
        if incomplete is not None and not self._missing:
            invocation.out.remark(incomplete.message)
        self._missing = "" if incomplete is None else incomplete.message
        seconds = time.monotonic() - started
        self._measures = Measures(namespace.name, tuple(entities), maintained, datetime.now(UTC), seconds, len(missing))
        self._up = True

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Answer a request."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, prometheus_of(self._measures, up=self._up).encode()
        if path != _ENTITIES and not path.startswith(f"{_ENTITIES}/"):
            return HTTPStatus.NOT_FOUND, "text/plain", b"/metrics, /entities and /entities/NAME\n"
        if not self._up or self._measures is None:
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": self._problem})
        entities = json_of(self._measures)
        if path == _ENTITIES:
            return _json(HTTPStatus.OK, entities)
        name = path.removeprefix(f"{_ENTITIES}/")
        found = {known.lower(): numbers for known, numbers in entities.items()}.get(name.lower())
        if found is None and self._missing:  # whether the entity exists is not known
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": self._missing})
        if found is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": f"there is no entity {name!r}"})
        return _json(HTTPStatus.OK, found)


def _json(status: HTTPStatus, value: object) -> tuple[HTTPStatus, str, bytes]:
    return status, "application/json", json.dumps(value).encode() + b"\n"
