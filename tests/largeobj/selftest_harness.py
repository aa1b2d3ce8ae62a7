"""Server, clients and helpers of selftest.py, which reads the command line."""

import contextlib
import mmap
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
from lib.ports import free_port  # noqa: E402

KIB = 1024
MIB = 1024 * 1024
MODULE, TARGET = [os.path.abspath(p) for p in sys.argv[1:3]]
SERVER = os.environ.get('VALKEY_SERVER') or shutil.which('valkey-server')
WORK = tempfile.mkdtemp(prefix='largeobj-')
STARTED = []
TESTS = []


class Error(Exception):
    """An error reply."""


class Conn:
    """One RESP2 connection. Arrays become lists, null becomes None, errors become Error objects in lists."""

    open = []

    def __init__(self, port, hello=None):
        self.sock = socket.create_connection(('127.0.0.1', port))
        Conn.open.append(self)
        self.sock.settimeout(30)
        self.buf = b''
        if hello:
            self.hello = self.call('BLOB.RDMA_HELLO', hello)

    def send(self, *args):
        out = [b'*%d\r\n' % len(args)]
        for arg in args:
            arg = arg if isinstance(arg, (bytes, bytearray)) else str(arg).encode()
            out.append(b'$%d\r\n%s\r\n' % (len(arg), arg))
        self.sock.sendall(b''.join(out))

    def fill(self):
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError('closed by the server')
        self.buf += data

    def line(self):
        while b'\r\n' not in self.buf:
            self.fill()
        line, self.buf = self.buf.split(b'\r\n', 1)
        return line

    def parse(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b'+':
            return rest.decode()
        if kind == b'-':
            return Error(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'*':
            return None if rest == b'-1' else [self.parse() for _ in range(int(rest))]
        if kind == b'$':
            size = int(rest)
            if size < 0:
                return None
            parts, have = [self.buf], len(self.buf)
            while have < size + 2:
                parts.append(self.sock.recv(1 << 20))
                if not parts[-1]:
                    raise ConnectionError('closed by the server')
                have += len(parts[-1])
            data = b''.join(parts)
            self.buf = data[size + 2:]
            return data[:size]
        raise ValueError(line)

    def read(self):
        reply = self.parse()
        if isinstance(reply, Error):
            raise reply
        return reply

    def call(self, *args):
        self.send(*args)
        return self.read()

    def config(self, **values):
        for name, value in values.items():
            self.call('CONFIG', 'SET', 'largeobj.' + name.replace('_', '-'), value)

    def stats(self):
        info = self.call('INFO', 'largeobj').decode()
        pairs = [line.split(':', 1) for line in info.splitlines() if ':' in line]
        return {name.removeprefix('largeobj_'): int(value) for name, value in pairs}

    def close(self):
        self.sock.close()
        if self in Conn.open:
            Conn.open.remove(self)

    def closed_by_server(self):
        try:
            return self.sock.recv(1) == b''
        except ConnectionResetError:
            return True


def stop(process):
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdin:
        process.stdin.close()
    if process.stdout:
        process.stdout.close()
    if process in STARTED:
        STARTED.remove(process)
    return process.returncode


def cleanup():
    for process in list(STARTED):
        stop(process)
    shutil.rmtree(WORK, ignore_errors=True)


class Server:
    def __init__(self, *args, interfaces='127.0.0.1,127.0.0.1'):
        self.dir = tempfile.mkdtemp(dir=WORK)
        self.log = os.path.join(self.dir, 'log')
        for _ in range(5):
            self.port = free_port()
            self.process = subprocess.Popen(
                [SERVER, '--port', str(self.port), '--bind', '127.0.0.1', '--save', '', '--dir', self.dir,
                 '--enable-debug-command', 'yes', '--logfile', self.log, '--loadmodule', MODULE,
                 '--largeobj.fabric-interfaces', interfaces, *args],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            STARTED.append(self.process)
            if self.up():
                return
            stop(self.process)
        raise RuntimeError('server does not start: ' + open(self.log, errors='replace').read()[-3000:])

    def up(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            with contextlib.suppress(OSError, Error):
                conn = Conn(self.port)
                if conn.call('PING') == 'PONG':
                    conn.close()
                    return True
            time.sleep(0.05)
        return False

    def conn(self, target=None):
        return Conn(self.port, target.address if target else None)

    def cpu_ticks(self):
        fields = open(f'/proc/{self.process.pid}/stat').read().rsplit(')', 1)[1].split()
        return int(fields[11]) + int(fields[12])


class Target:
    """Client memory on the fabric: `ranges` of (offset, length) in one shared file."""

    def __init__(self, size, ranges=None):
        ranges = ranges or [(0, size)]
        self.file = tempfile.NamedTemporaryFile(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else WORK)
        self.file.truncate(size)
        self.mem = mmap.mmap(self.file.fileno(), size)
        self.process = subprocess.Popen(
            [TARGET, '127.0.0.1', self.file.name] + [f'{o}:{n}' for o, n in ranges],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        STARTED.append(self.process)
        self.regions = []
        while (line := self.process.stdout.readline().split()) != ['ready']:
            if not line:
                raise RuntimeError('fabric_target failed')
            if line[0] == 'address':
                self.address = line[1]
            else:
                self.regions.append((int(line[1]), int(line[2])))
        self.key, self.addr = self.regions[0]

    def at(self, offset, length, region=0):
        key, addr = self.regions[region]
        return (key, addr + offset, length)

    def tell(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer == 'ok', answer

    def close(self):
        stop(self.process)
        self.mem.close()
        self.file.close()


def flat(triples):
    return [x for triple in triples for x in triple]


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def rdma_set(conn, key, length, *triples, crc=None):
    conn.send('BLOB.RDMA_SET', key, length, *(['CRC', crc] if crc is not None else []), *flat(triples))


def rdma_get(conn, key, *triples):
    conn.send('BLOB.RDMA_GET', key, *flat(triples))


def same(a, b):
    assert a == b, f'{a!r:.200} is not {b!r:.200}'


def fails(text, conn, *args):
    try:
        reply = conn.call(*args)
    except Error as e:
        same(str(e), text)
    else:
        raise AssertionError(f'{reply!r:.200} instead of {text!r}')


def read_fails(text, conn):
    try:
        reply = conn.read()
    except Error as e:
        same(str(e), text)
    else:
        raise AssertionError(f'{reply!r:.200} instead of {text!r}')


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'did not happen in time'
        time.sleep(0.005)


def elapsed(function):
    begin = time.monotonic()
    function()
    return time.monotonic() - begin


@contextlib.contextmanager
def switched(conn, **values):
    """Sets parameters and puts their former values back."""
    old = {name: conn.call('CONFIG', 'GET', 'largeobj.' + name.replace('_', '-'))[1] for name in values}
    conn.config(**values)
    try:
        yield
    finally:
        conn.config(**old)


def test(function):
    TESTS.append(function)
    return function


class World:
    """What most tests share: a server with two endpoints, a target of 192 MiB, an administrator's connection."""

    def __init__(self):
        self.server = Server()
        self.admin = self.server.conn()
        self.target = Target(192 * MIB, [(0, 192 * MIB), (MIB, 3 * MIB), (5 * MIB, MIB)])
        self.random = random.Random(1)

    def conn(self):
        return self.server.conn(self.target)

    def fill(self, offset, length):
        """Random bytes into the target's memory."""
        data = self.random.randbytes(length)
        self.target.mem[offset:offset + length] = data
        return data


NO_SESSION = 'ERR no RDMA session (call BLOB.RDMA_HELLO first)'
TRIPLES = 'ERR memory address args must be rkey, addr, len triples'
WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
WRITE_FAILED = 'ERR RDMA write failed'
READ_FAILED = 'ERR RDMA read failed'
