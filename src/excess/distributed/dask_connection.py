"""The connection to a Dask scheduler: every question to it has an end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from time import monotonic
from typing import Any

from excess._core.errors import ArgumentError, require
from excess.distributed.executors import DistributedError

__all__ = ["Connection", "first_line", "in_words"]

_CONNECTING = 10.0
"""Seconds for a scheduler to answer for the first time."""
_CLOSING = 2.0
"""Seconds for a client to close."""
_POLL = 1.0
"""Seconds after which a lost connection is noticed while an answer is waited for."""


class Connection:
    """A client of a Dask scheduler.

    Parameters
    ----------
    client : dask.distributed.Client or str
        The client, or the address of the scheduler.
    patience : float
        Seconds for the scheduler to answer.

    Raises
    ------
    DistributedError
        If the scheduler cannot be reached.
    """

    def __init__(self, client: Any, patience: float) -> None:
        self.distributed = _import_distributed()
        self.patience = patience
        self._is_own = isinstance(client, str)
        if self._is_own:
            client = self._open(client)
        elif not isinstance(client, self.distributed.Client):
            raise TypeError(
                f"executor must be a dask.distributed.Client, the address of a scheduler, an Executor or None, got "
                f"{type(client).__name__}"
            )
        elif client.asynchronous:
            raise ArgumentError("executor", "must be a client that waits for results, without asynchronous=True")
        self.client = client
        self.address = str(getattr(client.scheduler, "address", client))

    def ask(self, question: str, **details: Any) -> Any:
        """Ask the scheduler by the name of one of its handlers."""

        async def call() -> Any:
            return await getattr(self.client.scheduler, question)(**details)

        return self._answer(call)

    def run_on_scheduler(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on the scheduler."""

        async def call() -> Any:
            return await self.client.run_on_scheduler(function, *arguments)

        return self._answer(call)

    def start(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Start a coroutine of the client; return the future of its result.

        Raises
        ------
        ConnectionError
            If the scheduler was lost.
        """
        self.check_connected()
        return asyncio.run_coroutine_threadsafe(call(), self.client.loop.asyncio_loop)

    def check_connected(self) -> None:
        """Raise ConnectionError if the client has lost the scheduler."""
        if self.client.status != "running":
            raise ConnectionError(f"the client is {self.client.status}")

    def check_scheduler(self) -> None:
        """Raise DistributedError unless the scheduler answers."""
        try:
            self.ask("ncores")
        except DistributedError:
            raise
        except Exception as error:  # whatever it is, there is no scheduler to talk to
            raise DistributedError(f"the Dask scheduler at {self.address} was lost") from error

    def close(self) -> None:
        """Close the client, if it was opened here."""
        if self._is_own:
            with suppress(Exception):  # a lost scheduler must not hide the error that reported it
                self.client.close(timeout=_CLOSING)

    def _answer(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a coroutine that asks the scheduler."""
        answer = self.start(call)
        end = monotonic() + self.patience
        try:
            while not wait_for_all([answer], timeout=min(_POLL, self.patience)).done:
                self.check_connected()
                if monotonic() > end:
                    raise DistributedError(
                        f"the Dask scheduler at {self.address} has not answered for {in_words(self.patience)}; start "
                        "it again, or wait until it has less to do"
                    )
            return answer.result()
        finally:
            answer.cancel()

    def _open(self, address: str) -> Any:
        """Return a client of the scheduler at an address."""
        self._check_address(address)
        arguments = self._security(address)
        seconds = min(self.patience, _CONNECTING)

        async def find() -> Any:
            async with self.distributed.rpc(address, timeout=seconds, connection_args=arguments) as server:
                return await asyncio.wait_for(server.identity(), seconds)

        def connect() -> Any:
            # a client would wait for ever for something else than a scheduler, and would keep the process from ending
            found = asyncio.run(find())
            if found.get("type") != "Scheduler":
                raise ConnectionError(f"a Dask {str(found.get('type', 'server')).lower()} is there")
            return self.distributed.Client(address, timeout=seconds, set_as_default=False)

        try:
            return _run_in_thread(connect, 2 * seconds + 1)
        except Exception as error:  # what answers may be anything, and libraries raise anything then
            raise DistributedError(
                f"no Dask scheduler answers at {address!r} ({_reason(error, seconds)}); start one with 'dask "
                "scheduler', or check the address"
            ) from error

    def _check_address(self, address: str) -> None:
        """Raise ArgumentError for what cannot be an address."""
        if address.startswith("inproc://"):
            return
        try:
            port = self.distributed.comm.get_address_host_port(address)[1]
            if not 0 < port < 2**16:
                raise ValueError(f"there is no port {port}")
        except ValueError as error:
            problem = f"{address!r} is no address of a Dask scheduler, such as tcp://host:8786: {first_line(error)}"
            raise ArgumentError("executor", problem) from error

    def _security(self, address: str) -> dict[str, Any]:
        """Return the TLS settings of Dask's configuration."""
        try:
            arguments: dict[str, Any] = self.distributed.Security().get_connection_args("client")
        except Exception as error:
            raise DistributedError(
                f"the TLS settings of Dask cannot be used ({first_line(error)}); check distributed.comm.tls in its "
                "configuration"
            ) from error
        if address.startswith(("tls://", "wss://")) and arguments.get("ssl_context") is None:
            raise DistributedError(
                f"{address!r} needs TLS settings: set distributed.comm.tls.ca-file, client.cert and client.key in the "
                "configuration of Dask, or pass a Client with security= in Python"
            )
        return arguments


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its type."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def in_words(seconds: float) -> str:
    """Return a time, such as ``60 seconds``."""
    number = f"{seconds:.0f}" if seconds >= 2 else f"{seconds:.2g}"
    return f"{number} second{'s' * (number != '1')}"


def _import_distributed() -> Any:
    """Import Dask; its import sets the levels of its loggers, and what was silent before stays so."""
    level = logging.getLogger("distributed").level
    distributed = require("distributed", "fitting on Dask", extra="dask")
    if level > logging.CRITICAL:
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(level)
    return distributed


def _reason(error: BaseException, seconds: float) -> str:
    """Say why a connection has failed; the innermost error knows, such as that a connection was refused."""
    inner: BaseException | None = error
    while inner is not None:
        error, inner = inner, inner.__cause__ or inner.__context__
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return f"no answer within {in_words(seconds)}"
    return first_line(error) if isinstance(error, OSError) else "what answers is something else"


def _run_in_thread(function: Callable[[], Any], seconds: float) -> Any:
    """Return the result of a function, or raise TimeoutError; then its thread is left behind."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="excess-connect").start()
    try:
        return result.result(timeout=seconds)
    except TimeoutError as error:
        if result.done():
            raise
        raise TimeoutError(f"nothing was heard for {in_words(seconds)}") from error
