"""The parent's side of a child process: start it, talk to it by lines, and end it for certain."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, Self

from planner_service.jobs.child_messages import MAX_MESSAGE_BYTES, decode, encode


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a child may use; 0 means no limit."""

    memory_bytes: int = 0
    cpu_s: int = 0


class ChildEnded(Exception):
    """The child ended without an answer; `cause` is a problem code or None when it is not known."""

    def __init__(self, return_code: int | None) -> None:
        super().__init__(f"the child ended with {return_code}")
        self.return_code = return_code

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.return_code is None or self.return_code >= 0:
            return f"its process ended with exit code {self.return_code}"
        return f"its process was killed by signal {-self.return_code} ({signal.Signals(-self.return_code).name})"

    @property
    def hit_cpu_limit(self) -> bool:
        """Whether the kernel ended it for using too much processor time."""
        return self.return_code == -signal.SIGXCPU


class ChildProcess:
    """One child; use as a context manager, leaving it kills the child.

    Start it from a thread that lives as long as the child: Linux ties the child to that thread.
    """

    def __init__(self, solver_name: str, limits: ChildLimits) -> None:
        command = [sys.executable, "-P", "-m", "planner_service.jobs.child"]
        command += [solver_name, str(os.getpid()), str(limits.memory_bytes), str(limits.cpu_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), start_new_session=True
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """One message to the child; a dead child is noticed by `receive`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message, None when there is none in time; raises `ChildEnded` when there will be none."""
        try:
            message = self._lines.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None
        if message is None:
            self._lines.put(None)
            raise ChildEnded(self._process.wait())
        return message

    def kill(self) -> None:
        """Ends the child and everything it started, and collects it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except (BrokenPipeError, OSError):
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        """Turns the child's output into messages until it ends."""
        assert self._process.stdout is not None
        try:
            while line := self._process.stdout.readline(MAX_MESSAGE_BYTES):
                self._lines.put(decode(line))
        except ValueError:
            pass
        finally:
            self._lines.put(None)


def _environment() -> dict[str, str]:
    """The parent's environment with its import path, and without a thread pool for every library."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**threads, **os.environ, "PYTHONPATH": path}
