"""A RESP2 client, just enough to look at and to configure a Valkey server."""
import socket


class ServerError(Exception):
    pass


class Resp:
    def __init__(self, address, timeout=30):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self.input = self.socket.makefile('rb', buffering=1 << 20)

    def close(self):
        self.input.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, *words):
        self.send(*words)
        return self.receive()

    def send(self, *words):
        encoded = [word if isinstance(word, (bytes, bytearray, memoryview)) else str(word).encode() for word in words]
        self.socket.sendall(b'*%d\r\n' % len(encoded))
        for word in encoded:
            self.socket.sendall(b'$%d\r\n' % len(word))
            self.socket.sendall(word)
            self.socket.sendall(b'\r\n')

    def receive(self):
        line = self.input.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('the server closed the connection')
        kind, text = line[:1], line[1:-2]
        if kind == b'+':
            return text.decode()
        if kind == b'-':
            raise ServerError(text.decode())
        if kind == b':':
            return int(text)
        if kind == b'$':
            return None if text == b'-1' else self.input.read(int(text) + 2)[:-2]
        if kind == b'*':
            return [self.receive() for _ in range(int(text))]
        raise ConnectionError(f'not RESP2: {line[:60]!r}')
