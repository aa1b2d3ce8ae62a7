"""A client of glide-rdmad in plain Python, written from proto/PROTOCOL.md alone.

It needs nothing but the standard library, shares no code with the daemon, the C library or the test harness, and so
proves that the page is enough. It is simple rather than fast: one thread, values up to 1 MiB.
"""

import array
import base64
import collections
import fcntl
import json
import mmap
import os
import select
import socket
import time

VERSION = 1
MESSAGE_BYTES = 65536
SEND_BUFFER_BYTES = 256 * 1024
SEAL_SHRINK = 0x0002
ADD_SEALS = 1033
RECEIVED_FDS = 16

CRC_TABLE = []
for number in range(256):
    for _ in range(8):
        number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
    CRC_TABLE.append(number)


def crc32c(data, crc=0):
    """CRC-32C (Castagnoli) of bytes."""
    crc ^= 0xFFFFFFFF
    table = CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class Refused(Exception):
    """An answer that is an error, or the end of the connection as the error of a request without an answer."""

    def __init__(self, code, name, message, data):
        super().__init__(f"{name} ({code}): {message}")
        self.code = code
        self.name = name
        self.message = message
        self.data = data


class Ended(Exception):
    """The connection has ended: no request can be sent."""


class Memory:
    """A sealed memory file with its mapping."""

    def __init__(self, size):
        self.size = size
        self.fd = os.memfd_create("protocol-client", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, ADD_SEALS, SEAL_SHRINK)
        self.map = mmap.mmap(self.fd, size)
        for page in range(0, size, mmap.PAGESIZE):  # the client is the first to touch its memory
            self.map[page] = 0

    def write(self, offset, data):
        self.map[offset : offset + len(data)] = data

    def read(self, offset, length):
        return bytes(self.map[offset : offset + length])

    def close(self):
        self.map.close()
        os.close(self.fd)


def key_member(key):
    """The parameter that names a key: a text is sent as it is, bytes as base64."""
    if isinstance(key, str):
        return {"key": key}
    return {"key_b64": base64.b64encode(key).decode("ascii")}


def key_entry(key):
    """The entry of a list of keys."""
    return key if isinstance(key, str) else key_member(key)


class Client:
    """One session. Requests are submitted, and their answers, which come in any order, waited for by id."""

    def __init__(self, path, timeout=60.0):
        self.timeout = timeout
        self.pidfd = None
        self.next_id = 1
        self.open = {}  # id -> window (region, offset, length) or None, until the answer
        self.answers = {}
        self.without_id = []  # errors of packets in which the daemon read no id
        self.notifications = collections.deque()
        self.ended = False
        self.last_packet = None
        self.limits = {}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.socket.connect(path)

    def close(self):
        self.socket.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    # Packets

    def send_packet(self, packet, fds=()):
        """Sends one packet, with descriptors beside it."""
        control = []
        if fds:
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        try:
            self.socket.sendmsg([packet], control)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Ended(str(error)) from error

    def receive_packet(self, timeout):
        """One packet and its descriptors; None when the time is up, and an empty packet at the end."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        if not poller.poll(max(0, timeout * 1000)):
            return None, []
        space = socket.CMSG_SPACE(RECEIVED_FDS * array.array("i").itemsize)
        while True:
            try:
                packet, control, _, _ = self.socket.recvmsg(MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
                break
            except ConnectionResetError:
                continue  # reported once, ahead of the packets that are still there
        fds = array.array("i")
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        return packet, list(fds)

    def pump(self, timeout):
        """Receives one packet and files it. False when none came in time."""
        packet, fds = self.receive_packet(timeout)
        if packet is None:
            return False
        if not packet:
            for fd in fds:
                os.close(fd)
            self.ended = True
            return True
        message = json.loads(packet.decode("utf-8"))
        self.last_packet = message
        if "id" not in message:
            self.notifications.append((message["method"], message.get("params", {})))
        elif message["id"] is None:
            self.without_id.append(message["error"])
        else:
            self.file_answer(message, fds)
        for fd in fds:
            os.close(fd)
        return True

    def file_answer(self, message, fds):
        number = message["id"]
        if number not in self.open:
            raise AssertionError(f"an answer to no open request: {message}")
        if self.open[number] == "hello" and fds and "result" in message:
            self.pidfd = fds.pop(0)
        self.answers[number] = message
        del self.open[number]

    # Requests

    def submit(self, method, params=None, fd=None, window=None):
        """Sends a request and returns its id; the window is not to be touched until `wait` has returned."""
        number = self.next_id
        self.next_id += 1
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        packet = json.dumps(message, ensure_ascii=False).encode("utf-8")
        if len(packet) > MESSAGE_BYTES:
            raise ValueError("the request does not fit a packet")
        if self.ended:
            raise Ended("the connection has ended")
        self.open[number] = "hello" if method == "hello" else window
        try:
            self.send_packet(packet, [fd] if fd is not None else [])
        except Ended:
            del self.open[number]
            raise
        return number

    def wait(self, number, timeout=None):
        """The result of a request; Refused where the answer is an error, TimeoutError where none came."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while number not in self.answers:
            if self.ended:
                self.end(until)
            elif not self.pump(until - time.monotonic()):
                raise TimeoutError(f"no answer to request {number}")
        answer = self.answers.pop(number)
        if "error" in answer:
            error = answer["error"]
            data = error["data"]
            raise Refused(error["code"], data["name"], error["message"], data)
        return answer["result"]

    def call(self, method, params=None, fd=None, timeout=None):
        return self.wait(self.submit(method, params, fd), timeout)

    def wait_notification(self, method, timeout=None):
        """The members of the next notification of this name; others are dropped."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            while self.notifications:
                name, params = self.notifications.popleft()
                if name == method:
                    return params
            if self.ended or not self.pump(until - time.monotonic()):
                raise TimeoutError(f"no notification {method}")

    def wait_without_id(self, timeout=None):
        """The next error whose id is null."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not self.without_id:
            if self.ended or not self.pump(until - time.monotonic()):
                raise TimeoutError("no answer without an id")
        return self.without_id.pop(0)

    # The end of the connection

    def closed_on_purpose(self):
        return self.last_packet is not None and self.last_packet.get("method") == "session.closed"

    def daemon_gone(self, timeout):
        """Waits until the daemon's process is gone."""
        if self.pidfd is None:
            return True  # before hello there is no region, so nothing can be transferred
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(max(0, timeout * 1000)))

    def end(self, until):
        """Fails the requests without an answer, as soon as their windows may be used again."""
        if not self.closed_on_purpose() and not self.daemon_gone(until - time.monotonic()):
            raise TimeoutError("the connection has ended, and the daemon's process has not")
        for number in list(self.open):
            data = {"name": "interrupted", "may_have_run": True}
            error = {"code": -16, "message": "the connection ended before the answer", "data": data}
            self.answers[number] = {"id": number, "error": error}
            del self.open[number]

    def read_to_end(self, timeout=None):
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not self.ended:
            if not self.pump(until - time.monotonic()):
                raise TimeoutError("the connection has not ended")

    # Methods

    def hello(self, protocol=VERSION, name="protocol_client.py"):
        result = self.call("hello", {"protocol": protocol, "client": name})
        self.limits = result["limits"]
        return result

    def register(self, memory, **more):
        params = {"type": "memfd", "size": memory.size, **more}
        return self.call("region.register", params, fd=memory.fd)

    def close_region(self, region, **more):
        return self.call("region.close", {"region": region, **more})

    def submit_set(self, region, offset, length, key, **more):
        params = {"region": region, "offset": offset, "length": length, **key_member(key), **more}
        return self.submit("transfer.set", params, window=(region, offset, length))

    def submit_get(self, region, offset, length, key, **more):
        params = {"region": region, "offset": offset, "length": length, **key_member(key), **more}
        return self.submit("transfer.get", params, window=(region, offset, length))

    def set(self, *window_and_key, **more):
        return self.wait(self.submit_set(*window_and_key, **more))

    def get(self, *window_and_key, **more):
        return self.wait(self.submit_get(*window_and_key, **more))

    def cancel(self, number):
        return self.call("transfer.cancel", {"id": number})["cancelled"]

    def keys(self, method, keys, **more):
        return self.call("keys." + method, {"keys": [key_entry(key) for key in keys], **more})["keys"]

    def status(self):
        return self.call("status")
