"""Late bytes: catching a transfer in mid-bytes, and watching that no byte moves after its end.

A value is one chunk, so that one operation of the server writes it in order from the start to the end. What still holds
ORIGINAL when the transfer is over must hold it for ever; what was written is refilled, as its owner would, and must
stay refilled.
"""
import time

from lib import wait
from lib.memory import MIB, PAGE

SIZE = 256 * MIB
VALUE = 0x5A      # every byte of the value
ORIGINAL = 0xC3   # what the window holds before
REUSED = 0x3C     # what its owner writes when it is his again
WATCH_SECONDS = 3
ATTEMPTS = 10
QUEUED = 256 * 1024  # bytes in a send queue that can only be those of a value


class NotInTheMiddle(Exception):
    """The transfer was over, or had not begun, at the moment that matters: try again."""


def attempts(stage, once):
    """Calls once(number) until it did not miss the middle; a test that never hits it fails."""
    for number in range(ATTEMPTS):
        try:
            return once(number)
        except NotInTheMiddle:
            stage.valkey.process.thaw()
            stage.valkey.wait_idle()
    raise AssertionError(f'the middle of a transfer was not hit in {ATTEMPTS} attempts')


def wait_for_bytes(memory, seconds=60, at=0, over=lambda: False):
    """Returns as soon as the first byte of a value, which goes to `at`, has arrived. over: is the transfer?"""
    deadline = time.monotonic() + seconds
    while memory[at] == ORIGINAL:
        if over():
            raise NotInTheMiddle
        if time.monotonic() > deadline:
            raise AssertionError('no byte arrived')


def freeze_in_the_middle(server, memory, over=lambda: False):
    """Stops the server when a part of the value has been written, and the rest has not."""
    wait_for_bytes(memory, over=over)
    server.process.freeze()
    if memory[memory.size - 1] != ORIGINAL:
        raise NotInTheMiddle


def freeze_in_a_read(server, daemon, over):
    """Stops the server when it has read a part of a value: then the daemon cannot get rid of its bytes."""
    wait.until(lambda: daemon.bytes_unsent() > QUEUED or over(), 'the server reads')
    server.process.freeze()
    if not wait.soon(lambda: daemon.bytes_unsent() > QUEUED, 2):
        raise NotInTheMiddle


def watch(memory, server=None, other=None, seconds=WATCH_SECONDS, size=None):
    """The transfer is over: reuses the written part and makes sure that no byte changes any more.

    server: continued first, when it was stopped, so that it may go on if it can.
    other: memory that another client registered meanwhile, which may lie at the same addresses in the daemon; it holds
    ORIGINAL and is watched as well.
    size: of the window, at the start of the memory; None: all of it.
    """
    size = memory.size if size is None else size
    written = memory.first_page_holding(ORIGINAL, size)
    if written in (0, size):
        raise NotInTheMiddle
    memory.fill(REUSED, 0, written)
    if server is not None:
        server.process.thaw()
    end = time.monotonic() + seconds
    while True:
        last = time.monotonic() > end
        changed = not memory.holds(REUSED, 0, written), not memory.holds(ORIGINAL, written, size)
        if any(changed):
            pages = memory.pages_not(REUSED, 0, written), memory.pages_not(ORIGINAL, written, size)
            raise AssertionError(f'late bytes: {pages[0]} pages changed in the reused part of {written // PAGE}, '
                                 f'{pages[1]} in the rest of {(size - written) // PAGE}')
        if other is not None and not other.holds(ORIGINAL):
            raise AssertionError(f'late bytes in {other.pages_not(ORIGINAL, 0, other.size)} pages of another client')
        if last:
            return
        time.sleep(0.05)
