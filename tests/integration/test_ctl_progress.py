"""glide-rdmactl: what it shows on a terminal while it works."""
import os
import pty
import re
import signal
import subprocess
import threading
import time

from lib import expect, paths, tap, wait
from lib.ctl import AGAIN, ctl, good
from lib.memory import MIB
from lib.stage import Stage


class Terminal:
    """glide-rdmactl with a terminal as standard error; `shown` is what came there so far."""

    def __init__(self, stage, *words):
        self.master, slave = pty.openpty()
        self.shown = ''
        self.child = subprocess.Popen([ctl(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave,
                                      env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
        os.close(slave)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        while True:
            try:
                piece = os.read(self.master, 4096)
            except OSError:  # EIO: the other end is closed
                return
            if not piece:
                return
            self.shown += piece.decode()

    def shows(self, pattern, times=1):
        """Until so many different texts were there that match."""
        wait.until(lambda: len(set(re.findall(pattern, self.shown))) >= times, lambda: f'{pattern} in {self.shown!r}')

    def end(self):
        """(status, what came)"""
        self.child.stdin.close()
        self.child.stdout.read()
        self.child.stdout.close()
        status = self.child.wait(60)
        self.reader.join()
        os.close(self.master)
        return status, self.shown


def on_terminal(stage, *words, feed=None):
    """Runs to its end; returns status and what came on the terminal. feed(terminal): while it runs."""
    terminal = Terminal(stage, *words)
    try:
        if feed is not None:
            feed(terminal)
    finally:
        result = terminal.end()
    return result


def slowly(terminal):
    """Input that takes until the line is there."""
    terminal.child.stdin.write(b'x' * 1000)
    terminal.child.stdin.flush()
    terminal.shows(r'reading [|/\\-] \d')
    terminal.child.stdin.write(b'x' * 3000)


def check_taken_away(shown):
    """What is left on the line at the end is blank."""
    expect.equal(shown.split('\r')[-1], '')
    expect.equal(shown.split('\r')[-2].strip(), '')


def test_progress(stage):
    """On a terminal long work shows a line, and takes it away; short work shows none"""
    status, shown = on_terminal(stage, 'put', 'slow', '-', feed=slowly)
    expect.equal(status, 0)
    check_taken_away(shown)

    def held(terminal):
        """The server stands still until two signs have been there."""
        wait.until(lambda: stage.valkey.info('transfers') > 0, 'the transfer runs')
        with stage.valkey.process.frozen():
            terminal.shows(r'fetching ([|/\\-]) 3\.9 KiB', 2)

    with stage.valkey.faults(test_delay_before_reply_ms=1500):
        status, shown = on_terminal(stage, 'get', 'slow', '-', feed=held)
    expect.equal(status, 0)
    check_taken_away(shown)
    expect.equal(on_terminal(stage, 'exists', 'slow'), (0, ''))


def test_progress_of_known_size(stage):
    """A bar with a percentage, where the size is known"""
    stage.valkey.store('value', b'v' * MIB)
    fifo = os.path.join(stage.new_folder(), 'fifo')
    os.mkfifo(fifo)

    def drain_after_a_while(_):
        with open(fifo, 'rb') as pipe:
            time.sleep(1)  # a slow reader: long work
            pipe.read()

    def drain_when_shown(terminal):
        with open(fifo, 'rb') as pipe:
            terminal.shows(r'writing \[[#-]{30}\] +\d+%  .* of 1\.0 MiB')
            pipe.read()

    expect.equal(on_terminal(stage, 'get', '--quiet', 'value', fifo, feed=drain_after_a_while), (0, ''), '--quiet')
    status, shown = on_terminal(stage, 'get', 'value', fifo, feed=drain_when_shown)
    expect.equal(status, 0)
    check_taken_away(shown)


def test_progress_before_an_error(stage):
    """An error stands alone on its line"""
    with stage.valkey.faults(test_never_answer='yes'):
        status, shown = on_terminal(stage, 'put', 'late', '-', '--deadline', '4000',
                                    feed=lambda terminal: terminal.child.stdin.write(b'x'))
    stage.valkey.wait_idle()
    expect.equal(status, AGAIN)
    expect.holds(re.search(r'storing', shown), repr(shown))
    expect.holds(re.search(r'\r +\rglide-rdmactl: put: [^\r]*\r\n$', shown), repr(shown))


def test_progress_of_a_measurement(stage):
    """bench shows how much it has moved"""
    def until_shown(terminal):
        terminal.shows(r'moving [|/\\-] \d')
        terminal.child.send_signal(signal.SIGINT)

    status, shown = on_terminal(stage, 'bench', '--size', '64K', '--seconds', '1000', feed=until_shown)
    expect.equal(status, -signal.SIGINT)
    check_taken_away(shown)


def test_no_progress_without_terminal(stage):
    """Where standard error is no terminal nothing is shown, however long it takes"""
    with stage.valkey.faults(test_delay_before_reply_ms=1200):
        good(stage, 'put', 'quiet', '-', data=b'x' * 5000)


tap.run(globals(), Stage())
