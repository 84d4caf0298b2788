"""A Ray cluster: joined, or started for this command alone."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from llmfair.errors import BackendError, MissingExtra, UsageError, line_of

INSTALL = "pip install 'llmfair[ray]'"
LOCAL = "local"
CONNECT_SECONDS = 5.0
START_SECONDS = 300.0
"""Until a process has a place in the cluster, which may be full."""
LOGS = "Ray's logs on its node say why; the same command continues"


def library() -> Any:
    """Ray itself. Raises MissingExtra."""
    # else it tells of deaths on stdout, where the result stands
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of several, the first is told
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("--engine ray needs Ray.", INSTALL) from None
    return ray


def joined(address: str | None) -> Future[None]:
    """Joins a cluster, unless this process is in one. Raises MissingExtra; the future, UsageError where there is none.

    `address`: of the cluster, `local` for one of this run's own; None: as RAY_ADDRESS says, or the one on this machine.
    In a thread that the end of the process does not wait for, and that goes on until then: with the thread that started
    it a cluster is killed, and its agents notice up to a minute later, where Ray itself would have ended them before.
    """
    ray, found = library(), Future[None]()
    found.set_running_or_notify_cancel()

    def run() -> None:
        try:
            with _joining:
                _join(ray, address)
        except BaseException as error:
            found.set_exception(error)
        else:
            found.set_result(None)
            threading.Event().wait()

    if ray.is_initialized():
        found.set_result(None)
    else:
        threading.Thread(target=run, name="llmfair-ray", daemon=True).start()
    return found


_joining = threading.Lock()


def _join(ray: Any, address: str | None) -> None:
    if ray.is_initialized():  # by one that was given up
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it is told to its makers
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    host, colon, port = where.rpartition(":")
    try:
        if colon and "/" not in host:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        with _own_sigterm():
            ray.init(
                address=where,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if where != LOCAL else False,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            "no Ray cluster runs here that lets this command in."
            if where == "auto"
            else f"there is no Ray cluster at {where}: {line_of(error)}.",
            "ray start --head, whose ~/.ray/auth_token has to be on every node, or --ray-address local for one of "
            "this run's own",
        ) from None


def no_place(seconds: float) -> BackendError:
    return BackendError(
        f"a process of the Ray cluster has had no place for {seconds:.0f} s.",
        "ray status says what is taken; fewer --ray-workers, or more nodes",
    )


def check_same(there: str, here: str) -> None:
    """Raises UsageError where a process has another model than this one."""
    if there != here:
        raise UsageError(
            f"a process of the Ray cluster has another model: {there}, not {here}.",
            "every node needs what this one has: files, the ranker's code, OPENAI_BASE_URL",
        )


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Puts back the process's handler of SIGTERM: Ray's would print a trace and abort. Any thread may do this so."""
    kept, libc = ctypes.create_string_buffer(512), ctypes.CDLL(None)
    libc.sigaction(signal.SIGTERM, None, kept)
    try:
        yield
    finally:
        libc.sigaction(signal.SIGTERM, kept, None)
