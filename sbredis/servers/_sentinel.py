"""A local master with replicas and sentinels on the loopback address, for tests and demonstrations."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from sbredis._public import public
from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError
from sbredis.servers._binary import ServerBinary
from sbredis.servers._group import LocalGroup
from sbredis.servers._local import LocalServer, Settings

__all__ = ["LocalSentinel"]


class _RewrittenServer(LocalServer):
    """A server whose configuration file the sentinels change. So a restart must not overwrite the file."""

    def _write_config(self) -> None:
        if not self._config_file.exists():
            super()._write_config()


class _Sentinel(_RewrittenServer):
    def __init__(self, *, binary: ServerBinary, directory: Path) -> None:
        super().__init__(binary=binary, directory=directory)
        self.id = secrets.token_hex(20)
        self.monitoring: Sequence[str] = ()

    def _settings(self) -> dict[str, str | Sequence[str]]:
        return {"bind": self.host, "port": str(self.port), "daemonize": "no", "sentinel": self.monitoring}

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]


@public
class LocalSentinel(LocalGroup):
    """One master with ``replicas`` replicas, watched by ``sentinels`` sentinels. All servers and sentinels end at the
    latest when this process ends.

    The sentinels consider the master down when it was silent for ``down_after`` milliseconds and most sentinels agree.
    ``binary`` and ``config`` are as for :class:`LocalServer` and apply to the master and its replicas. If ``config``
    has a ``requirepass``, the replicas and the sentinels use this password too.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. A server that was killed and restarted comes
    back on its port and in its folder. An old master comes back as a master, and the sentinels make it a replica some
    10 s later.
    """

    name = "mymaster"
    """The name that the sentinels use for the master."""

    def __init__(
        self,
        replicas: int = 1,
        sentinels: int = 3,
        *,
        down_after: int = 500,
        binary: ServerBinary | str | None = None,
        config: Settings | None = None,
    ) -> None:
        self._replicas = replicas
        self._sentinels = sentinels
        self._down_after = down_after
        super().__init__(binary)
        self._config = dict(config or {})
        password = self._config.get("requirepass")
        self._password = password if isinstance(password, str) else None
        if self._password is not None:
            self._config.setdefault("masterauth", self._password)
        self.servers: list[LocalServer] = []
        """The data servers; the first was the master at the start."""
        self.sentinels: list[LocalServer] = []

    # -- waiting until the group works

    def wait_until_ok(self, timeout: float = 30.0) -> None:
        """Wait until the live servers and sentinels work together.

        The group works if

        - all live sentinels name the same server, which is alive and says that it is a master;
        - all other live servers say that they are its replicas, and their links to it are up;
        - the sentinels can reach their quorum.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError`, which says what was still missing.
        """
        deadline = time.monotonic() + timeout
        while (missing := self._missing()) is not None:
            if time.monotonic() > deadline:
                raise ServerUnsuitableError(f"The group of sentinels is not ready after {timeout:g} s: {missing}")
            time.sleep(0.02)

    # -- roles

    @property
    def url(self) -> str:
        """The connection string, with all sentinels: ``redis+sentinel://127.0.0.1:P1,127.0.0.1:P2,…/mymaster``."""
        return "redis+sentinel://" + ",".join(f"{each.host}:{each.port}" for each in self.sentinels) + f"/{self.name}"

    @property
    def master(self) -> LocalServer:
        """The present master: the first sentinel that answers names it.

        Raises :class:`LookupError` if no sentinel answers.
        """
        for sentinel in self.sentinels:
            named = self._named_by(sentinel)
            if named is not None:
                return named
        raise LookupError("no sentinel answers")

    def kill_master(self) -> LocalServer:
        """Kill the present master (SIGKILL) and return it. The sentinels take a moment to promote a replica."""
        master = self.master
        master.kill()
        return master

    # -- forming the group

    def _members(self) -> list[LocalServer]:
        return [*self.sentinels, *self.servers]

    def _drop_members(self) -> None:
        self.servers, self.sentinels = [], []

    def _make_members(self, binary: ServerBinary, directory: Path) -> None:
        def server(index: int, config: Settings) -> LocalServer:
            return _RewrittenServer(binary=binary, config=config, directory=directory / f"server{index}")

        master = server(0, self._config)
        master.prepare()  # the replicas and sentinels need the master's port
        following = self._config | {"replicaof": f"{master.host} {master.port}"}
        self.servers = [master, *(server(index + 1, following) for index in range(self._replicas))]
        sentinels = [_Sentinel(binary=binary, directory=directory / f"sentinel{n}") for n in range(self._sentinels)]
        self.sentinels = list(sentinels)
        for each in (*self.servers[1:], *sentinels):
            each.prepare()
        for sentinel in sentinels:
            # Tell the sentinels about all servers now: by themselves they look for replicas only every 10 s.
            others = [other for other in sentinels if other is not sentinel]
            sentinel.monitoring = [
                f"myid {sentinel.id}",
                f"monitor {self.name} {master.host} {master.port} {self._sentinels // 2 + 1}",
                f"down-after-milliseconds {self.name} {self._down_after}",
                f"failover-timeout {self.name} {max(2000, 4 * self._down_after)}",
                f"parallel-syncs {self.name} {max(1, self._replicas)}",
                *([f"auth-pass {self.name} {self._password}"] if self._password is not None else ()),
                *(f"known-replica {self.name} {each.host} {each.port}" for each in self.servers[1:]),
                *(f"known-sentinel {self.name} {other.host} {other.port} {other.id}" for other in others),
            ]

    def _launch(self) -> bool:
        for group in (self.servers, self.sentinels):
            for each in group:
                each.launch()
            ready = [each.await_ready() for each in group]
            if not all(ready):
                return False
        return True

    def _named_by(self, sentinel: LocalServer) -> LocalServer | None:
        try:
            address = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name, timeout=1)
        except (OSError, ScriptRefusedError):
            return None
        if not isinstance(address, list):
            return None
        return next((server for server in self.servers if str(server.port) == address[1]), None)

    def _missing(self) -> str | None:
        """Return a reason why the group does not work; ``None`` if it works."""
        watching = [sentinel for sentinel in self.sentinels if sentinel.is_alive()]
        named = {self._named_by(sentinel) for sentinel in watching}
        if len(named) != 1 or None in named:
            return f"the sentinels name {len(named)} different masters"
        (master,) = named
        if master is None or not master.is_alive():
            return "the sentinels name a master that is dead"
        try:
            for server in self.servers:
                complaint = self._complaint(server, master) if server.is_alive() else None
                if complaint:
                    return f"{server.url} {complaint}"
            for sentinel in watching:
                sentinel.ask("SENTINEL", "CKQUORUM", self.name, timeout=1)
        except (OSError, ScriptRefusedError) as error:
            return str(error)
        return None

    @staticmethod
    def _complaint(server: LocalServer, master: LocalServer) -> str | None:
        about = str(server.ask("INFO", "replication", timeout=1))
        if server is master:
            return None if "role:master" in about else "is not a master yet"
        if f"master_port:{master.port}\r" not in about:
            return "is not a replica of the master"
        return None if "master_link_status:up" in about else "is not connected to the master"
