"""glide-rdmactl: what it shows on a terminal while it works."""
import os
import pty
import re
import subprocess
import threading
import time

from lib import expect, paths, tap
from lib.ctl import AGAIN, ctl, good
from lib.memory import MIB
from lib.stage import Stage


def on_terminal(stage, *words, feed=None):
    """Runs with a terminal as standard error; returns status and what came there."""
    master, slave = pty.openpty()
    child = subprocess.Popen([ctl(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave,
                             env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
    os.close(slave)
    if feed is not None:
        feed(child.stdin)
    child.stdin.close()
    shown = b''
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # EIO: the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    child.stdout.read()
    child.stdout.close()
    return child.wait(20), shown.decode()


def slowly(pipe):
    for _ in range(4):
        pipe.write(b'x' * 1000)
        pipe.flush()
        time.sleep(0.25)  # work that takes a while


def check_taken_away(shown):
    """What is left on the line at the end is blank."""
    expect.equal(shown.split('\r')[-1], '')
    expect.equal(shown.split('\r')[-2].strip(), '')


def test_progress(stage):
    """On a terminal long work shows a line, and takes it away; short work shows none"""
    status, shown = on_terminal(stage, 'put', 'slow', '-', feed=slowly)
    expect.equal(status, 0)
    expect.holds(re.search(r'reading [|/\\-] \d', shown), repr(shown))
    check_taken_away(shown)
    with stage.valkey.faults(test_delay_before_reply_ms=1500):
        status, shown = on_terminal(stage, 'get', 'slow', '-')
    expect.equal(status, 0)
    expect.holds(len(set(re.findall(r'fetching ([|/\\-]) 3\.9 KiB', shown))) > 1, repr(shown))
    check_taken_away(shown)
    expect.equal(on_terminal(stage, 'exists', 'slow'), (0, ''))


def test_progress_of_known_size(stage):
    """A bar with a percentage, where the size is known"""
    stage.valkey.store('value', b'v' * MIB)
    fifo = os.path.join(stage.new_folder(), 'fifo')
    os.mkfifo(fifo)

    def drain():
        with open(fifo, 'rb') as pipe:
            time.sleep(1)  # a slow reader: long work
            pipe.read()

    reader = threading.Thread(target=drain)
    reader.start()
    status, shown = on_terminal(stage, 'get', '--quiet', 'value', fifo)
    reader.join()
    expect.equal((status, shown), (0, ''), '--quiet')
    reader = threading.Thread(target=drain)
    reader.start()
    status, shown = on_terminal(stage, 'get', 'value', fifo)
    reader.join()
    expect.equal(status, 0)
    expect.holds(re.search(r'writing \[[#-]{30}\] +\d+%  .* of 1\.0 MiB', shown), repr(shown))
    check_taken_away(shown)


def test_progress_before_an_error(stage):
    """An error stands alone on its line"""
    with stage.valkey.faults(test_delay_before_reply_ms=5000):
        status, shown = on_terminal(stage, 'put', 'late', '-', '--deadline', '2000', feed=lambda pipe: pipe.write(b'x'))
    stage.valkey.wait_idle()
    expect.equal(status, AGAIN)
    expect.holds(re.search(r'storing', shown), repr(shown))
    expect.holds(re.search(r'\r +\rglide-rdmactl: put: [^\r]*\r\n$', shown), repr(shown))


def test_progress_of_a_measurement(stage):
    """bench shows how much it has moved"""
    status, shown = on_terminal(stage, 'bench', '--size', '64K', '--seconds', '1')
    expect.equal(status, 0)
    expect.holds(re.search(r'moving [|/\\-] \d', shown), repr(shown))
    check_taken_away(shown)


def test_no_progress_without_terminal(stage):
    """Where standard error is no terminal nothing is shown, however long it takes"""
    with stage.valkey.faults(test_delay_before_reply_ms=1200):
        good(stage, 'put', 'quiet', '-', data=b'x' * 5000)


tap.run(globals(), Stage())
