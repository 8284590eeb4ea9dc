"""Check the spelling of all files: no known misspelling anywhere, and British spelling in prose.

codespell finds misspellings, in code as well as in prose; its settings are in ``pyproject.toml``. American spellings
are searched only in prose, because names in code follow Python and its libraries. Prose is Markdown without its code,
the comments and docstrings of Python, and the comments of Lua.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import codespell_lib

from tools.check_docs import CODE_SPAN, FENCE
from tools.repository import ROOT, files

__all__ = ["american_spellings", "misspellings", "problems", "prose"]

_BRITISH_TOO = {
    "analog",
    "license",
    "licenses",
    "math",
    "meter",
    "meters",
    "program",
    "routing",
    "stories",
    "story",
    "writable",
}
"""Words that codespell lists as American, but that British programmers use as well."""

_WORD = re.compile(r"\w+")
_PYTHON_CODE = re.compile(r"(?::\w+)*:?`+[^`]+`+")
_ADDRESS = re.compile(r"\]\([^)\s]+\)")
"""The address of a link."""
_LUA_COMMENT = re.compile(r"^.*?(?:--|$)", re.MULTILINE)
"""The part of each line of Lua that is not a comment."""


def _british_words() -> dict[str, str]:
    """Return the British spelling of each American word that codespell knows."""
    dictionary = Path(codespell_lib.__file__).parent / "data" / "dictionary_en-GB_to_en-US.txt"
    pairs = [line.strip().split("->") for line in dictionary.read_text("utf-8").splitlines() if "->" in line]
    return {american: british for british, american in pairs if american not in _BRITISH_TOO}


_BRITISH = _british_words()


def _blank(code: re.Match[str]) -> str:
    """Return only the line ends of some code, so that the lines after the code keep their numbers."""
    return "\n" * code[0].count("\n")


def _python_prose(text: str) -> str:
    """Return the comments and docstrings of Python code, on their lines."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] += token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number, line in enumerate(node.value.value.splitlines(), start=node.lineno):
                lines[number] += line
    return "\n".join(lines[1:])


def prose(text: str, suffix: str) -> str:
    """Return the prose of a file with this suffix, on its lines."""
    match suffix:
        case ".md":
            return _ADDRESS.sub("]", CODE_SPAN.sub("", FENCE.sub(_blank, text)))
        case ".py":
            return _PYTHON_CODE.sub(_blank, _python_prose(text))
        case ".lua":
            return CODE_SPAN.sub("", _LUA_COMMENT.sub("", text))
        case _:
            return ""


def american_spellings(text: str) -> Iterator[str]:
    """Name each American spelling in some prose, with its line and its British spelling."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word in _WORD.findall(line):
            if word.lower() in _BRITISH:
                yield f"{number}: {word} ==> {_BRITISH[word.lower()]}"


def misspellings(paths: Sequence[Path]) -> list[str]:
    """Name each misspelling that codespell finds, with its file and line."""
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml"), *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 65}:  # codespell exits with 65 if it found misspellings
        raise RuntimeError(f"codespell failed: {done.stderr}")
    return done.stdout.splitlines()


def problems() -> Iterator[str]:
    """Name all misspelt words in this repository."""
    yield from misspellings(files(".md", ".py", ".lua", ".toml", ".txt", "Makefile"))
    for path in files(".md", ".py", ".lua"):
        for found in american_spellings(prose(path.read_text("utf-8"), path.suffix)):
            yield f"{path.relative_to(ROOT)}:{found}"


def main() -> int:
    found = list(problems())
    print("\n".join(found) or "no word is misspelt")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
