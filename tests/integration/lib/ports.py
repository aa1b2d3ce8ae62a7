"""Ports of loopback that are this test's alone, though many tests run at the same time."""
import contextlib
import fcntl
import os
import random
import socket
import tempfile

LOWEST = 10000
_held = []      # a locked file for each port; the kernel lets go of them when the test ends


def _first_given_away():
    """From this port on the kernel gives ports to outgoing connections."""
    with open('/proc/sys/net/ipv4/ip_local_port_range', encoding='ascii') as file:
        return int(file.read().split()[0])


def _reserve(port):
    """False when another test has it, whether or not anything listens there yet."""
    folder = os.path.join(tempfile.gettempdir(), 'glide-rdmad-test-ports')
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o755)
    file = os.open(os.path.join(folder, str(port)), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _held.append(file)
    return True


def free_port():
    """One that nobody else gets before, or while, the server that it is for is away; to the end of the test."""
    below = _first_given_away()
    for _ in range(100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(('127.0.0.1', random.randrange(LOWEST, below) if below > LOWEST + 1000 else 0))
            port = probe.getsockname()[1]
            if _reserve(port):
                return port
    raise AssertionError('no free port')
