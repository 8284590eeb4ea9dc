"""The line with which a program tells another process where to connect. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sbredis.transport._address import Endpoint, Target, TlsOptions

__all__ = ["reach_in", "reach_line"]


def reach_line(target: Target, connect_timeout: float) -> bytes:
    """Return a line that says where and how to connect. It has the password, so it goes through a pipe only."""
    return json.dumps({"target": asdict(target), "connect_timeout": connect_timeout}).encode() + b"\n"


def reach_in(line: bytes) -> tuple[Target, float]:
    """Return the target and the connect timeout in such a line."""
    told: dict[str, Any] = json.loads(line)
    values: dict[str, Any] = told["target"]
    tls: list[Any] | None = values["tls"]
    values["endpoints"] = tuple(Endpoint(*each) for each in values["endpoints"])
    values["tls"] = None if tls is None else TlsOptions(*tls)
    return Target(**values), told["connect_timeout"]
