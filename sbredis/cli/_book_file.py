"""The file with a user's contexts. It may have passwords, so it is read only if nobody else has access to it."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from pathlib import Path

from sbredis.cli._server_choice import Book, NoServerError, read_book, write_book

__all__ = ["book_path", "exposure", "load_book", "save_book"]


def book_path() -> Path:
    """Return the path of the file: ``$SBREDIS_CONTEXTS``, or ``sbredis/contexts.json`` in the user's settings.

    Raises :class:`~sbredis.cli._server_choice.NoServerError` if the user has no home folder.
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
        raise NoServerError(
            "There is no home folder, where contexts are stored. Set SBREDIS_CONTEXTS to the path of a file for them, "
            "or name a server: --url, or SBREDIS_URL."
        )
    return home / ".config" / "sbredis" / "contexts.json"


def exposure(path: Path, *, mode: int, owner: int, user: int) -> str | None:
    """Return why a file is not safe to read for a user, and the remedy; ``None`` if it is safe.

    The mode and the owner are those of the file itself, if the path is a link.
    """
    if owner != user:
        return (
            f"{path} belongs to another user, who can change it, so it is not read. Delete it, or set SBREDIS_CONTEXTS "
            "to the path of a file of your own."
        )
    if stat.S_IMODE(mode) & 0o077:
        return (
            f"{path} may hold passwords, and other users have access to it (mode {stat.S_IMODE(mode):04o}), so it is "
            f"not read. Run: chmod 600 {shlex.quote(str(path))}"
        )
    return None


def load_book() -> Book:
    """Return the stored contexts; none if there is no file.

    Raises :class:`~sbredis.cli._server_choice.NoServerError` if other users have access to the file, or if it is
    malformed.
    """
    path = book_path()
    try:
        with path.open(encoding="utf-8") as file:
            if os.name == "posix":  # Windows has no such modes
                found = os.fstat(file.fileno())  # of the open file, which nobody can exchange any more
                problem = exposure(path, mode=found.st_mode, owner=found.st_uid, user=os.geteuid())
                if problem is not None:
                    raise NoServerError(problem)
            text = file.read()
    except FileNotFoundError:
        return Book()
    try:
        return read_book(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoServerError(f"{path} is not a file of contexts. Correct or delete it.") from error


def save_book(book: Book) -> None:
    """Store the contexts. The file is replaced as a whole, with mode 0600; a folder made for it has mode 0700."""
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
