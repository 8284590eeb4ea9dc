"""Python programs that run in processes of their own, and end with the test."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from tools.repository import ROOT

__all__ = ["child", "run_module", "run_program"]

Stream = int | IO[bytes] | None


def run_program(
    *command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends. Return what it printed and its exit status. ``env`` is its whole environment."""
    return subprocess.run(
        command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=280, check=False
    )


def run_module(module: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE`` with these arguments in a folder, and return what it printed and its exit status.

    ``environment`` is added to the environment.
    """
    return run_program(sys.executable, "-m", module, *arguments, cwd=cwd, env={**os.environ, **environment})


@asynccontextmanager
async def child(
    *arguments: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> AsyncGenerator[Process]:
    """Run Python with these arguments. The program finds sbredis; ``env`` is added to its environment. At the end, kill
    the process if it still runs.
    """
    found = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        cwd=cwd,
        env={**os.environ, **found, **(env or {})},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
