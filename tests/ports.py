"""A port for a server that cannot choose one and say it."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """One that no other process is given meanwhile: systems hand out ports from 32768 or 49152 on."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")
