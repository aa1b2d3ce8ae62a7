"""A Valkey server that answers what a test wants: a relay in front of a real one, which a script can contradict.

Commands without a script are passed on, so that BLOB sessions are real and everything works again when the script ends.
"""
import contextlib
import socket
import threading

from lib.resp import Resp


class Answer:
    """`data` instead of the real reply. end: then the connection is closed. ask: the real server gets the command, too,
    and its reply is thrown away; `data` may be a function of it."""

    def __init__(self, data, end=False, ask=False):
        self.data = data
        self.end = end
        self.ask = ask


class ScriptedServer:
    def __init__(self, valkey):
        self.valkey = valkey
        self.process = None  # for lib.stage: there is none
        self.answers = {}
        self.connections = 0
        self.logouts = 0
        self.sockets = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.address = f'127.0.0.1:{self.port}'  # for lib.stage
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        self.drop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def drop(self):
        """Closes every connection."""
        with self.lock:
            for end in self.sockets:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def say(self, data):
        """Sends this on every connection, unasked."""
        with self.lock:
            for end in self.sockets:
                with contextlib.suppress(OSError):  # one that the daemon has just closed
                    end.sendall(data)

    def script(self, **answers):
        """script(EXISTS=Answer(...), BLOB_RDMA_GET=Answer(...)), for the time of a with block."""
        return _Script(self, {name.replace('BLOB_', 'BLOB.').encode(): answer for name, answer in answers.items()})

    def log_out(self):
        """Every connection to the real server is as one that never logged in, before its next command."""
        with self.lock:
            self.logouts += 1

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.sockets.add(client)
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client):
        try:
            with client, self.valkey.connect() as real, client.makefile('rb', buffering=1 << 16) as commands:
                seen = self.logouts
                while (words := read_command(commands)) is not None:
                    if seen != self.logouts:
                        seen = self.logouts
                        real.call('RESET')
                    if not self._one(client, words, real):
                        break
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.sockets.discard(client)

    def _one(self, client, words, real):
        answer = self.answers.get(words[0].upper())
        if answer is None or answer.ask:
            # At once, as it came: a server may end the connection with an error before the last word.
            real.socket.sendall(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%b\r\n' % (len(w), w) for w in words))
            reply = read_raw(real)
        if answer is None:
            client.sendall(reply)
            return True
        data = answer.data
        client.sendall(data(reply) if callable(data) else data)
        return not answer.end


class _Script:
    def __init__(self, server, answers):
        self.server = server
        self.answers = answers

    def __enter__(self):
        self.server.answers = self.answers

    def __exit__(self, *_):
        self.server.answers = {}


def read_command(stream):
    line = stream.readline()
    if not line.startswith(b'*'):
        return None
    words = []
    for _ in range(int(line[1:])):
        length = int(stream.readline()[1:])
        words.append(stream.read(length + 2)[:-2])
    return words


def read_raw(resp: Resp):
    """The bytes of one reply."""
    line = resp.input.readline()
    if not line.endswith(b'\r\n'):
        raise ConnectionError('the server closed the connection')
    if line[:1] == b'$' and line != b'$-1\r\n':
        return line + resp.input.read(int(line[1:]) + 2)
    if line[:1] == b'*' and line != b'*-1\r\n':
        return line + b''.join(read_raw(resp) for _ in range(int(line[1:])))
    return line
