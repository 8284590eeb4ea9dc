"""What a program tells another process, so that it connects in the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.transport import TlsOptions, parse_target, reach_in, reach_line


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:p%40ss@h:1/?namespace=a",
        "redis+sentinel://h:1,i:2/main?sentinel_password=x",
        "redis+cluster://h:1?scripts=all",
    ],
)
def test_the_process_connects_as_the_program_does(url: str) -> None:
    target = parse_target(url)
    assert reach_in(reach_line(target, 3.0)) == (target, 3.0)
    safe = replace(target, tls=TlsOptions(ca_file="ca"))
    assert reach_in(reach_line(safe, 3.0)) == (safe, 3.0)
