"""Spark's standalone cluster on this machine: a master and two workers, each a process of its own, as are executors."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from console.local_stack.java import java_home_for_spark
from console.local_stack.processes import ServerCommand, ServerProcess, free_port
from console.local_stack.spark import spark_runtime
from tests.support.eventually import eventually
from tests.support.processes import children

_HOST = "127.0.0.1"
_SPARK = Path(pyspark.__file__).parent
_FAST_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
ENVIRONMENT = {"SPARK_LOCAL_IP": _HOST}
"""Of its driver."""


class SparkCluster:
    """`with` ends it, executors included."""

    def __init__(self) -> None:
        self.url = ""
        # On this machine every JVM of Spark may map the classes that the driver does; on another there is no such file.
        self._options = f"{spark_runtime().java_options} {_FAST_START}"
        self.settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": self._options}
        """Of an application that has one executor on each worker."""
        self._workers: list[ServerProcess] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            port = free_port()
            master = self._begun(stack, "master", "master.Master", "--port", str(port))
            log = master.directory / "log"
            eventually(lambda: "New state: ALIVE" in log.read_text(), what="Spark's master")
            self.url = f"spark://{_HOST}:{port}"
            for number in (1, 2):
                each = ("--cores", "1", "--memory", "600m", self.url)
                self._workers.append(self._begun(stack, f"worker{number}", "worker.Worker", *each))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kill_a_worker(self) -> int:
        """By SIGKILL, with its executor, whose id is returned."""
        worker = self._workers.pop().pid
        assert worker is not None
        (executor,) = children(worker, "java")
        for pid in (worker, executor):  # in this order: a worker replaces an executor that ends
            os.kill(pid, signal.SIGKILL)
        return executor

    def _begun(self, stack: ExitStack, name: str, main: str, *arguments: str) -> ServerProcess:
        process = ServerProcess(f"spark-{name}", None)
        stack.callback(process.close)
        process.start(
            ServerCommand(
                argv=[
                    str(_SPARK / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{main}",
                    *("--host", _HOST, "--webui-port", "0"),
                    *arguments,
                ],
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    "JAVA_HOME": str(java_home_for_spark()),
                    "SPARK_HOME": str(_SPARK),
                    "SPARK_WORKER_DIR": str(process.directory / "work"),
                    "SPARK_DAEMON_MEMORY": "128m",
                    "SPARK_DAEMON_JAVA_OPTS": f"{self._options} -Dspark.master.rest.enabled=false",
                },
                log=process.directory / "log",
                end_signal=signal.SIGKILL,
                end_seconds=15.0,
            )
        )
        return process
