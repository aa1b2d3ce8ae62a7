"""The raw control protocol: one JSON-RPC message a packet, with its descriptors, on SOCK_SEQPACKET."""
import array
import base64
import json
import os
import select
import socket
import time

from lib import wait

MESSAGE_BYTES = 64 * 1024
FDS_MAX = 253
ANSWER_WITHIN = 60 * wait.SLOWNESS


class RpcError(Exception):
    """An error answer: code, name (data.name), message, data."""

    def __init__(self, error):
        self.code = error.get('code')
        self.message = error.get('message')
        self.data = error.get('data') or {}
        self.name = self.data.get('name')
        super().__init__(f'{self.name} ({self.code}): {self.message} {self.data}')


def key_param(key):
    """The members of params that name a key."""
    if isinstance(key, bytes):
        try:
            text = key.decode('utf-8')
        except UnicodeDecodeError:
            text = '\0'
        if '\0' in text:
            return {'key_b64': base64.b64encode(key).decode()}
        key = text
    return {'key': key}


def keys_param(keys):
    """Entries of a `keys` list: a text, or an object with key_b64."""
    result = []
    for key in keys:
        member = key_param(key)
        result.append(member['key'] if 'key' in member else member)
    return result


class Session:
    def __init__(self, path, hello=True, client='integration test'):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
        self.socket.connect(path)
        self.next_id = 1
        self.answers = {}
        self.without_id = []
        self.notifications = []
        self.ended = False
        self.pidfd = -1
        self.last_packet = None
        self.hello = None
        if hello:
            self.hello = self.call('hello', protocol=1, client=client)

    def close(self):
        self.socket.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- sending

    def send_bytes(self, packet, fds=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
        self.socket.sendmsg([packet], ancillary)

    def send(self, message, fds=()):
        self.send_bytes(json.dumps(message, ensure_ascii=False, separators=(',', ':')).encode(), fds)

    def request(self, method, fds=(), **params):
        """Sends a request and returns its id."""
        number = self.next_id
        self.next_id += 1
        message = {'jsonrpc': '2.0', 'id': number, 'method': method}
        if params:
            message['params'] = params
        self.send(message, fds)
        return number

    # --- receiving

    def receive(self, seconds):
        """Takes one packet in. False: nothing came within `seconds`, or the session has ended."""
        if self.ended or not select.select([self.socket], [], [], max(0, seconds))[0]:
            return False
        try:
            packet, ancillary, flags, _ = self.socket.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * FDS_MAX),
                                                              socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return True  # reported once, ahead of what the daemon sent before: go on reading
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                for fd in array.array('i', data[:len(data) - len(data) % 4]):
                    self._take_fd(fd)
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), 'a packet of the daemon was truncated'
        if not packet:
            self.ended = True
            return False
        self._take_message(json.loads(packet))
        return True

    def _take_fd(self, fd):
        assert self.pidfd < 0, 'the daemon sent a second descriptor'
        self.pidfd = fd

    def _take_message(self, message):
        assert message.get('jsonrpc') == '2.0', message
        self.last_packet = message
        if 'method' in message:
            self.notifications.append(message)
        elif message.get('id') is None:
            self.without_id.append(message)
        else:
            assert message['id'] not in self.answers, f'a second answer: {message}'
            self.answers[message['id']] = message

    def pump_until(self, found, seconds):
        deadline = time.monotonic() + seconds
        while not found():
            left = deadline - time.monotonic()
            if left <= 0 or (not self.receive(left) and self.ended):
                return found()
        return True

    def answered(self, number):
        """Takes in what is there; True when the request has its answer."""
        while self.receive(0):
            pass
        return number in self.answers

    def wait(self, number, seconds=ANSWER_WITHIN):
        """The result of a request; raises RpcError for an error answer."""
        if not self.pump_until(lambda: number in self.answers, seconds):
            raise AssertionError(f'request {number} has no answer: '
                                 + ('the session ended' if self.ended else f'nothing within {seconds} s'))
        answer = self.answers[number]
        if 'error' in answer:
            raise RpcError(answer['error'])
        return answer['result']

    def outcome(self, number, seconds=ANSWER_WITHIN):
        """'ok' or the name of the error."""
        try:
            self.wait(number, seconds)
            return 'ok'
        except RpcError as error:
            return error.name

    def wait_without_id(self, seconds=ANSWER_WITHIN):
        """The next error answer with id null."""
        if not self.pump_until(lambda: self.without_id, seconds):
            raise AssertionError('no answer with id null came')
        return RpcError(self.without_id.pop(0)['error'])

    def wait_notification(self, method, seconds=ANSWER_WITHIN):
        def find():
            return [n for n in self.notifications if n['method'] == method]

        if not self.pump_until(find, seconds):
            raise AssertionError(f'no notification {method}; came: {self.notifications}')
        return find()[0].get('params', {})

    def wait_end(self, seconds=ANSWER_WITHIN):
        """Reads until the daemon has closed the session."""
        self.pump_until(lambda: self.ended, seconds)
        assert self.ended, 'the daemon did not close the session'

    # --- requests

    def keys(self, method, *keys):
        """Entries of the answer of keys.exists, keys.delete or keys.info."""
        return self.call(method, keys=keys_param(keys))['keys']

    def exists(self, *keys):
        return self._flags('keys.exists', 'exists', keys)

    def delete(self, *keys):
        return self._flags('keys.delete', 'deleted', keys)

    def _flags(self, method, name, keys):
        """One boolean a key; an entry that failed is raised."""
        entries = self.keys(method, *keys)
        for entry in entries:
            if 'error' in entry:
                raise RpcError({'message': entry['error'].get('message'), 'data': entry['error']})
        return [entry[name] for entry in entries]

    def call(self, method, fds=(), **params):
        return self.wait(self.request(method, fds, **params))

    def register(self, memory, size=None, offset=0, **params):
        """Registers a lib.memory.Memory and returns the region's number."""
        return self.call('region.register', fds=(memory.fd,), type='memfd',
                         size=memory.size - offset if size is None else size, offset=offset, **params)['region']

    def start_set(self, region, offset, length, key, **params):
        return self.request('transfer.set', region=region, offset=offset, length=length, **key_param(key), **params)

    def start_get(self, region, offset, length, key, **params):
        return self.request('transfer.get', region=region, offset=offset, length=length, **key_param(key), **params)

    def set(self, *arguments, **params):
        return self.wait(self.start_set(*arguments, **params))

    def get(self, *arguments, **params):
        return self.wait(self.start_get(*arguments, **params))

    def wait_until_sets_work(self, region, key='key', length=100):
        """Tries, whatever the errors are, until a value of `length` bytes is stored."""
        wait.until(lambda: self.outcome(self.start_set(region, 0, length, key)) == 'ok', 'a set works', pause=0.05)
