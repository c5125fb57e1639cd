"""A stage as a process that is started again whenever it ends, as a container's restart policy would."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from console.stages import Stage
from tests.support.processes import children, descendants, signal_all

MARK = "PENSTOCKS_CHAOS"
"""A variable of every process of a run, by which those that were left behind are found. Not one of penstock's."""
MOST_MEMORY = 300 * 1024**2
_LOOK_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
_STOP_SECONDS = 60.0
_LOSS = "records were sent to", "is gone, and the topics end at", "past the last checkpoint"
"""Of reasons that nothing done here may lead to."""
_TRACEBACK = "Traceback (most recent call last)"


class Supervised:
    """`with` starts it and ends it. What should never be seen of a process is kept in `failures`."""

    def __init__(self, name: str, arguments: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = environment
        self._folder = folder
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._stage: Stage | None = None
        self.starts = 0
        self.peak_bytes = 0
        self.reasons: Counter[str] = Counter()
        self.failures: list[str] = []
        self._scratches: list[Path] = []
        self._excused = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks it to drain, which it must do."""
        self._stopping.set()
        self._thread.join()

    @property
    def pid(self) -> int | None:
        stage = self._stage
        return stage.process.pid if stage is not None and stage.process.poll() is None else None

    def kill(self) -> None:
        """Only the process itself: what it started has to notice."""
        pid = self.pid
        if pid is not None:
            signal_all([pid], signal.SIGKILL)

    def tell_stacks(self) -> None:
        """Into its log: what each thread does."""
        pid = self.pid
        if pid is not None:
            signal_all([pid], signal.SIGUSR1)
            signal_all(children(pid, "java"), signal.SIGQUIT)

    def excuse_files(self) -> None:
        """Of the process that runs now: what is about to be killed cannot remove its own."""
        self._excused = self.starts

    def left_files(self) -> list[str]:
        """What processes of this stage that ended by themselves left in the folder for temporary files."""
        return [str(file) for scratch in self._scratches for file in scratch.iterdir()]

    def _run(self) -> None:
        while not self._stopping.is_set():
            scratch = self._folder / "scratch" / f"{self.name}-{self.starts}"
            scratch.mkdir(parents=True)
            log = self._folder / f"{self.name}-{self.starts}.log"
            self.starts += 1
            with log.open("wb") as errors:
                self._stage = Stage(self.name, self._arguments, self._scratched(scratch), errors)
            code = self._watch(self._stage)
            self._judge(self._stage, code, log, scratch)
            self._stage.close()
            self._stopping.wait(_PAUSE_SECONDS)
        self._stage = None

    def _scratched(self, scratch: Path) -> dict[str, str]:
        java = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch} -XX:-UsePerfData"
        return {
            **os.environ,
            **self._environment,
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_SUBMIT_OPTS": java.strip(),
            MARK: str(os.getpid()),
        }

    def _watch(self, stage: Stage) -> int:
        until: float | None = None
        while (code := stage.process.poll()) is None:
            self._measure(stage.process.pid)
            if self._stopping.is_set() and until is None:
                stage.process.terminate()
                until = time.monotonic() + _STOP_SECONDS
            if until is not None and time.monotonic() > until:
                self.failures.append(f"{self.name} did not drain within {_STOP_SECONDS:g} s")
                stage.process.kill()
            time.sleep(_LOOK_SECONDS)
        return code

    def _measure(self, pid: int) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
        self.peak_bytes = max(self.peak_bytes, int(peak.split()[1]) * 1024)

    def _judge(self, stage: Stage, code: int, log: Path, scratch: Path) -> None:
        asked = self._stopping.is_set()
        allowed = (0, -signal.SIGTERM) if asked else (1, -signal.SIGKILL)
        reason = stage.failure().reason if code or not asked else "stopped"
        self.reasons[reason] += 1
        if any(words in reason for words in _LOSS):
            self.failures.append(f"{log.name}: {reason}")
        if code not in allowed:
            self.failures.append(f"{log.name}: exit code {code}: {reason}")
        if _TRACEBACK in log.read_text(errors="replace"):
            self.failures.append(f"{log.name}: a traceback")
        if code in (0, 1) and self._excused != self.starts:
            self._scratches.append(scratch)  # a Java process removes its files a moment later


def left_behind(running: list[int]) -> list[str]:
    """Processes of this run that belong to none of the running ones."""
    known = {pid for each in running for pid in (each, *descendants(each))}
    mark = f"{MARK}={os.getpid()}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in known:
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue  # it ended while we looked
    return found
