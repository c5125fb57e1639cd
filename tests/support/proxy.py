"""A TCP proxy whose cable can be pulled, bent, or torn: connections fall silent, slow down, or are reset."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what was not sent is thrown away, and the peer gets an RST


class Proxy:
    """Forwards connections to a port of this host. One thread, which `with` ends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._pumps: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}
        self._begun: set[asyncio.Task[None]] = set()  # kept, or it might be collected while it waits
        self._muted: set[asyncio.Task[None]] = set()
        self._silent: list[asyncio.StreamWriter] = []
        self._open = asyncio.Event()
        self._seconds = 0.0
        self._rate = float("inf")
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Connections that are there stay open, and silent for ever. New ones go through."""
        self._now(self._cut)

    def mute(self) -> None:
        """As `cut`, but who closes an end has the other one closed, too: as most of what lies between does."""
        self._now(self._mute)

    def reset(self) -> None:
        """Connections that are there get an RST at both ends. New ones go through."""
        self._now(self._reset)

    def hold(self) -> None:
        """Nothing goes through, and nothing is lost, until `heal`."""
        self._now(self._open.clear)

    def slow(self, *, seconds: float = 0.0, bytes_per_second: float = float("inf")) -> None:
        """Each piece is late by so much, and all of a connection's take as long as such a line would, until `heal`."""
        self._now(lambda: self._weather(seconds, bytes_per_second))

    def heal(self) -> None:
        """As it was, for connections that are not cut."""
        self._now(lambda: (self._weather(0.0, float("inf")), self._open.set()))

    def _now(self, work: Callable[[], object]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (work(), done.set()))
        done.wait()

    def _weather(self, seconds: float, rate: float) -> None:
        self._seconds, self._rate = seconds, rate

    def _cut(self) -> None:
        for pump, ends in self._pumps.items():
            pump.cancel()
            self._silent += ends
        self._pumps.clear()

    def _mute(self) -> None:
        self._muted |= self._pumps.keys()
        self._cut()

    def _reset(self) -> None:
        for pump, ends in self._pumps.items():
            pump.cancel()
            for end in ends:
                with suppress(OSError):  # it has just closed by itself
                    end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.transport.abort()
        self._pumps.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._open.set()
        self._listener.setblocking(False)
        accepting = self._loop.create_task(self._accept())
        self._loop.run_forever()
        accepting.cancel()
        self._reset()
        for end in self._silent:
            end.transport.abort()
        self._loop.run_until_complete(self._ended())
        self._loop.close()
        self._listener.close()

    async def _ended(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            near, _ = await self._loop.sock_accept(self._listener)
            self._begun.add(asyncio.create_task(self._connected(near)))

    async def _connected(self, near: socket.socket) -> None:
        far = socket.socket()
        far.setblocking(False)
        try:
            await self._loop.sock_connect(far, ("127.0.0.1", self._target))
        except (OSError, asyncio.CancelledError):
            near.close()
            far.close()
            return
        reader, writer = await asyncio.open_connection(sock=near)
        far_reader, far_writer = await asyncio.open_connection(sock=far)
        task, ends = asyncio.current_task(), (writer, far_writer)
        assert task is not None
        self._pumps[task] = ends
        with suppress(OSError, asyncio.CancelledError):
            await self._either_ends(self._pump(reader, far_writer), self._pump(far_reader, writer))
            for end in ends:
                end.close()
            for end in ends:
                await end.wait_closed()
        if task in self._muted:
            with suppress(OSError, asyncio.CancelledError):
                await self._either_ends(self._swallow(reader), self._swallow(far_reader))
        if self._pumps.pop(task, None) is not None or task in self._muted:  # else it is cut, and stays open
            for end in ends:
                end.transport.abort()

    async def _either_ends(self, *pumps: Coroutine[None, None, None]) -> None:
        both = [asyncio.ensure_future(pump) for pump in pumps]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._open.wait()
            late = self._seconds + len(data) / self._rate
            if late:
                await asyncio.sleep(late)
            writer.write(data)
            await writer.drain()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(_CHUNK):
            pass
