"""The process that starts copy workers, when capture is killed at a bad moment."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, select, socket
from multiprocessing import Pipe
from capture.table_sync import nursery

made = nursery.Nursery()
mine, theirs = Pipe()
socket.send_fds(made._orders, [nursery._ORDER.pack(nursery._BEGIN, 0)], [theirs.fileno()])
select.select([made._orders], [], [])
made._orders.close()
print(os.waitstatus_to_exitcode(os.waitpid(made._pid, 0)[1]))
"""


def test_a_capture_that_is_killed_before_it_reads_an_answer_leaves_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.stdout.strip(), ended.stderr) == ("0", "")
