"""The workers, seen from capture: started when there is work, given one range at a time, ended when there is none."""

from __future__ import annotations

from multiprocessing import connection

from capture.table_sync.nursery import Nursery
from capture.table_sync.worker import Report, Task, WorkerSettings

_LAST_WORDS_SECONDS = 5.0


class Worker:
    """One process and the pipe to it. It is gone when the pipe has ended: nobody else has its other end."""

    def __init__(self, nursery: Nursery, settings: WorkerSettings) -> None:
        self._nursery = nursery
        self._pid, self.pipe = nursery.begin()
        self.pipe.send(settings)

    def give(self, task: Task) -> bool:
        """False if the process is gone and cannot take it."""
        try:
            self.pipe.send(task)
        except OSError:
            return False
        return True

    def reports(self) -> tuple[list[Report], bool]:
        """What it said since the last look, and whether it can still say anything."""
        said: list[Report] = []
        try:
            while self.pipe.poll():
                said.append(self.pipe.recv())
        except (EOFError, OSError):
            return said, False
        return said, True

    def dismiss(self) -> None:
        """An idle worker ends by itself when its pipe is closed."""
        self.pipe.close()

    def kill(self) -> None:
        """Whatever it is doing, nobody wants it any more. Returns when it does nothing any more."""
        self._nursery.end(self._pid)
        while connection.wait([self.pipe], _LAST_WORDS_SECONDS):
            try:
                self.pipe.recv_bytes()
            except (EOFError, OSError):
                break
        self.pipe.close()
