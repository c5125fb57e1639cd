"""The workers, seen from capture: started when there is work, given one range at a time, ended when there is none."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from capture.table_sync.worker import Report, Task, WorkerSettings, work

_LAST_WORDS_SECONDS = 5.0


class Worker:
    """One process and the pipe to it."""

    def __init__(self, settings: WorkerSettings) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = spawn.Pipe()
        self._process: BaseProcess = spawn.Process(target=work, args=(settings, theirs), name="table-copy")
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> bool:
        """False if the process is gone and cannot take it."""
        try:
            self.pipe.send(task)
        except OSError:
            return False
        return True

    def reports(self) -> tuple[list[Report], bool]:
        """What it said since the last look, and whether it can still say anything."""
        alive = self._process.is_alive()
        said: list[Report] = []
        try:
            while self.pipe.poll():
                said.append(self.pipe.recv())
        except (EOFError, OSError):
            alive = False
        return said, alive

    def dismiss(self) -> None:
        """Closes the pipe: an idle worker ends by itself, and is ended if it does not."""
        self.pipe.close()
        self._process.join(_LAST_WORDS_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_LAST_WORDS_SECONDS)
        self._process.close()

    def kill(self) -> None:
        """Whatever it is doing, nobody wants it any more."""
        self._process.kill()
        self.dismiss()
