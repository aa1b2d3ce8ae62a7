"""What the library answers when the daemon ends: at once after its word, else when its process is gone.

The clients here do not reconnect; test_restart.py has those that do.
"""
import os
import socket
import threading
import time

from lib import expect, grd, tap, wait
from lib.stage import Stage


class Calls:
    """A get and a set in flight, each in a thread; when and how they ended."""

    def __init__(self, server, daemon):
        server.store('value', b'v' * 1000)
        self.client = grd.Client(daemon.path, reconnect=False)
        self.region = self.client.create(8192)
        self.ended = {}
        calls = {'get': lambda: self.region.get(b'value', 0, 1000), 'set': lambda: self.region.set(b'key', 4096, 1000)}
        self.threads = [threading.Thread(target=self._call, args=item, daemon=True) for item in calls.items()]
        for thread in self.threads:
            thread.start()
        wait.until(lambda: server.info('transfers') == 2, 'both are in flight')

    def _call(self, name, call):
        try:
            call()
            self.ended[name] = 'ok', False, time.monotonic()
        except grd.GrdError as error:
            self.ended[name] = error.name, error.may_have_run, time.monotonic()

    def join(self, seconds=60):
        for thread in self.threads:
            thread.join(seconds)
        expect.equal(len(self.ended), 2, 'calls that ended')
        return {name: entry[:2] for name, entry in self.ended.items()}

    def close(self):
        self.region.close()
        self.client.close()


class Relay:
    """Stands between one client and the daemon, so that the connection can be cut while both live."""

    def __init__(self, daemon, folder):
        self.daemon = daemon
        self.path = os.path.join(folder, 'relay.sock')
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        self.ends = []
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def _accept(self):
        client, _ = self.listener.accept()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.connect(self.daemon.path)
        self.ends = [client, server]
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    @staticmethod
    def _copy(source, target):
        while True:
            try:
                packet, fds, _, _ = socket.recv_fds(source, 65536, 4)
                if not packet:
                    return
                socket.send_fds(target, [packet], fds)
            except OSError:
                return
            for fd in fds:
                os.close(fd)

    def cut(self):
        """The client sees the end; the daemon does not."""
        self.ends[0].shutdown(socket.SHUT_RDWR)


def test_orderly_end(stage):
    """The daemon says goodbye: calls are answered, and whatever comes later is interrupted"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'daemon.drain_ms': 100})
    with server.faults(test_never_answer='yes'):
        calls = Calls(server, daemon)
        expect.equal(daemon.stop(), 0)
        outcomes = calls.join()
    expect.equal((outcomes['get'][0], outcomes['set']), ('interrupted', ('interrupted', True)))
    with expect.error('interrupted', 'closed'):
        calls.region.get(b'value', 0, 1000)
    calls.close()


def test_sudden_end(stage):
    """The daemon is killed: calls are interrupted; a set may have run"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with server.faults(test_never_answer='yes'):
        calls = Calls(server, daemon)
        daemon.kill()
        outcomes = calls.join()
    expect.equal((outcomes['get'][0], outcomes['set']), ('interrupted', ('interrupted', True)))
    calls.close()


def test_socket_closed_but_process_alive(stage):
    """The connection ends without goodbye while the process lives: no call is answered before it is gone"""
    server = stage.other_valkey()
    relay = Relay(stage.other_daemon(server), stage.new_folder())
    with server.faults(test_never_answer='yes'):
        calls = Calls(server, relay)
        relay.cut()
        wait.soon(lambda: calls.ended, 1)
        expect.equal(calls.ended, {}, 'calls answered although the process lives')
        relay.daemon.kill()
        outcomes = calls.join()
    expect.equal((outcomes['get'][0], outcomes['set']), ('interrupted', ('interrupted', True)))
    calls.close()


def test_connect_again(stage):
    """After the daemon's restart a new client works with the same memory"""
    daemon = stage.other_daemon()
    with stage.memory(8192, fill=5) as memory:
        client = grd.Client(daemon.path, reconnect=False)
        region = client.register(memory.fd)
        region.set(b'again', 0, 1000)
        daemon.kill()
        daemon.start()
        with expect.error('interrupted', 'closed'):
            region.get(b'again', 4096, 1000)
        with grd.Client(daemon.path) as second:
            other = second.register(memory.fd)
            expect.equal(other.get(b'again', 4096, 1000).verified, True)
            other.close()
        region.close()
        client.close()


tap.run(globals(), Stage())
