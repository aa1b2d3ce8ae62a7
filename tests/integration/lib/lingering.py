"""Descriptors whose close() waits."""
import os
import socket
import struct

from lib import expect

# Parts of it are what a loop that does not wait is allowed, on a busy host. close() lets go of all at once.
LINGER_SECONDS = 20
WORKERS_PER_USER = 2


class Lingering:
    """TCP sockets whose last close() waits for so many seconds, since nobody reads what they have sent."""

    def __init__(self, seconds=LINGER_SECONDS):
        self.seconds = seconds
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.ends = []

    def fd(self):
        end = socket.create_connection(self.listener.getsockname())
        self.ends.append(self.listener.accept()[0])
        end.setblocking(False)
        try:
            while True:
                end.send(b'x' * 65536)
        except BlockingIOError:
            pass
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, self.seconds))
        return end.detach()

    def close(self):
        """Whoever waits in a close() goes on: nobody is there any more to read."""
        for end in self.ends:
            end.close()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def hang(self, daemon, *sessions):
        """Makes the workers of their users wait: they must close descriptors that nobody else holds any more."""
        fds = [self.fd() for _ in range(WORKERS_PER_USER * len(sessions))]
        daemon.process.freeze()  # so that ours are closed first
        numbers = []
        for session, fd in zip(sessions * WORKERS_PER_USER, fds):
            numbers.append((session, session.request('status', [fd])))
            os.close(fd)
        daemon.process.thaw()
        for session, number in numbers:
            expect.equal(session.outcome(number), 'bad_fd')
