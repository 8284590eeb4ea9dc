"""The file with a user's contexts. It may have passwords, so only its owner may read it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sbredis.cli._places import Book, NoPlaceError, read_book, write_book

__all__ = ["book_path", "load_book", "save_book"]


def book_path() -> Path:
    """Return the path of the file: ``$SBREDIS_CONTEXTS``, or ``sbredis/contexts.json`` in the user's settings.

    Raises :class:`~sbredis.cli._places.NoPlaceError` if the user has no home folder.
    """
    if named := os.environ.get("SBREDIS_CONTEXTS"):
        return Path(named)
    if settings := os.environ.get("XDG_CONFIG_HOME"):
        return Path(settings) / "sbredis" / "contexts.json"
    try:
        home = None if os.environ.get("HOME") == "" else Path.home()
    except RuntimeError:  # the user has no entry among the users of the system, as in some containers
        home = None
    if home is None:
        raise NoPlaceError(
            "There is no home folder, where contexts are stored. Set SBREDIS_CONTEXTS to the path of a file for them, "
            "or name a server: --url, or SBREDIS_URL."
        )
    return home / ".config" / "sbredis" / "contexts.json"


def load_book() -> Book:
    """Return the stored contexts; none if there is no file."""
    path = book_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Book()
    try:
        return read_book(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoPlaceError(f"{path} is not a file of contexts. Correct or delete it.") from error


def save_book(book: Book) -> None:
    """Store the contexts: the file is replaced as a whole, with mode 0600."""
    path = book_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # mkstemp makes it with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(write_book(book))
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
