"""Write the synchronous API and its tests, or check that they are up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.make_sync.derived_tests import left_out, made_tests
from tools.make_sync.facades import RuleMissingError, formatted, made_modules
from tools.repository import ROOT

__all__ = ["made_files", "main", "stale"]


def made_files() -> dict[Path, str]:
    """Return the texts of all files that the tool makes."""
    return formatted({**made_modules(), **made_tests()})


def stale(texts: dict[Path, str]) -> list[Path]:
    """Return the files that do not have these texts."""
    return [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.make_sync", description="Make the synchronous API.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file is stale")
    parser.add_argument("--left-out", action="store_true", help="list the tests that have no synchronous form, and why")
    options = parser.parse_args(arguments)
    if options.left_out:
        print(*left_out(), sep="\n")
        return 0
    try:
        texts = made_files()
    except RuleMissingError as error:
        print(error, file=sys.stderr)
        return 1
    wrong = stale(texts)
    for path in wrong:
        if options.check:
            print(f"{path.relative_to(ROOT)} is not what tools/make_sync makes: run `make sync`.", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], "utf-8")
            print(f"made {path.relative_to(ROOT)}")
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
