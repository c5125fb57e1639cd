"""A server never outlives its owner, however stubborn it is."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.local_stack.errors import LocalStackError, ServerDidNotStop
from console.local_stack.processes import ServerCommand, ServerProcess, free_port, is_free, last_lines, listens
from tests.support.eventually import eventually
from tests.support.processes import alive


def shell(script: str, directory: Path, *, end_seconds: float = 5.0) -> ServerCommand:
    return ServerCommand(
        argv=["/bin/sh", "-c", script],
        env={"PATH": os.defpath},
        log=directory / "server.log",
        end_signal=signal.SIGTERM,
        end_seconds=end_seconds,
    )


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    process = ServerProcess("test", None)
    try:
        yield process
    finally:
        process.close()


def started(server: ServerProcess, script: str, *, end_seconds: float = 5.0) -> int:
    """Start a script that says `ready` when it is; return its pid."""
    server.start(shell(script, server.directory, end_seconds=end_seconds))
    eventually(lambda: "ready" in (server.directory / "server.log").read_text())
    assert server.pid is not None
    return server.pid


def test_closing_ends_the_server_and_removes_its_folder(server: ServerProcess) -> None:
    pid = started(server, "echo ready; exec sleep 1000")
    directory = server.directory

    server.close()

    assert not alive(pid)
    assert not directory.exists()


def test_closing_kills_a_server_that_does_not_listen(server: ServerProcess) -> None:
    pid = started(server, "trap '' TERM; echo ready; while :; do sleep 1000; done", end_seconds=0.2)

    server.close()

    assert not alive(pid)


def test_closing_ends_a_frozen_server(server: ServerProcess) -> None:
    pid = started(server, "echo ready; exec sleep 1000")
    os.kill(pid, signal.SIGSTOP)

    server.close()

    assert not alive(pid)


def test_what_a_killed_server_leaves_behind_is_ended_too(server: ServerProcess) -> None:
    started(server, "setsid sleep 1000 & echo ready $!; wait")
    child = int((server.directory / "server.log").read_text().split()[1])

    server.stop(signal.SIGKILL, 5.0)

    assert not alive(child)
    assert not server.running()


def test_a_server_may_be_started_again_after_it_ended_by_itself(server: ServerProcess) -> None:
    server.start(shell("exit 3", server.directory))
    eventually(lambda: not server.running())

    again = started(server, "echo ready; exec sleep 1000")

    assert server.running()
    assert alive(again)


def test_a_server_that_outlives_its_signal_is_reported_and_goes_on(server: ServerProcess) -> None:
    pid = started(server, "trap '' TERM; echo ready; while :; do sleep 1000; done", end_seconds=0.1)

    with pytest.raises(ServerDidNotStop, match=f"process {pid}.* after SIGTERM"):
        server.stop(signal.SIGTERM, 0.2)

    assert server.running()


def test_a_program_that_does_not_exist_is_reported(server: ServerProcess) -> None:
    command = ServerCommand(["/no/such/program"], {}, server.directory / "server.log", signal.SIGTERM, 1.0)

    with pytest.raises(LocalStackError, match="/no/such/program"):
        server.start(command)

    assert not server.running()


def test_a_server_outlives_the_thread_that_started_it(server: ServerProcess) -> None:
    starter = threading.Thread(target=started, args=(server, "echo ready; exec sleep 1000"))
    starter.start()
    starter.join()

    assert server.running()


def test_a_server_hears_no_ctrl_c_of_our_terminal(server: ServerProcess) -> None:
    pid = started(server, "echo ready; exec sleep 1000")

    assert os.getsid(pid) != os.getsid(0)
    assert os.getsid(server._supervisor.pid) != os.getsid(0)


def test_a_killed_supervisor_takes_the_server_with_it(server: ServerProcess) -> None:
    pid = started(server, "echo ready; exec sleep 1000")

    server._supervisor.kill()

    eventually(lambda: not alive(pid))
    server.close()
    assert not server.directory.exists()


def test_a_given_folder_stays(tmp_path: Path) -> None:
    process = ServerProcess("test", tmp_path)
    process.start(shell("echo kept > new; mv new file; exec sleep 1000", tmp_path))
    eventually((tmp_path / "file").exists)

    process.close()

    assert (tmp_path / "file").read_text() == "kept\n"


def test_a_port_is_free_until_somebody_listens() -> None:
    port = free_port()
    assert is_free(port)
    assert not listens(port)

    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
        assert listens(port)


def test_the_last_lines_of_a_missing_log_say_that_it_is_missing(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log") == "(no log)"
