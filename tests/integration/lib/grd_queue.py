"""Queues of libglide-rdmad-client, for a program that only polls the descriptor and reaps."""
import select
import time
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from lib import grd

SET, GET = 1, 2


class _Transfer(Structure):
    _fields_ = [('struct_size', c_size_t), ('operation', c_int), ('checksum', c_int), ('crc32c', c_uint32),
                ('no_verify', c_bool), ('no_retry', c_bool), ('key', c_char_p), ('key_length', c_size_t),
                ('window', grd._Window), ('deadline_ms', c_uint64), ('ttl_ms', c_uint64), ('user_data', c_uint64),
                ('ticket', c_uint64)]


class Completion(Structure):
    _fields_ = [('user_data', c_uint64), ('ticket', c_uint64), ('operation', c_int), ('code', c_int),
                ('receipt', grd.Receipt), ('error', grd._Error), ('reserved', c_uint64 * 4)]

    @property
    def outcome(self):
        """'ok' or the error's name, and may_have_run."""
        return ('ok' if self.code == 0 else self.error.name.decode()), self.error.may_have_run


class Queue:
    def __init__(self, client):
        self.library = grd.library()
        self.library.grd_queue_close.argtypes = (c_void_p,)
        self.library.grd_queue_close.restype = None
        self.library.grd_reap.argtypes = (c_void_p, POINTER(Completion), c_size_t, c_int, POINTER(c_size_t), c_void_p)
        self.handle = c_void_p()
        grd._checked(self.library.grd_queue_create, client.handle, byref(self.handle))
        self.fd = self.library.grd_queue_fd(self.handle)
        self.wakes = 0

    def submit(self, operation, key, window, user_data):
        transfer = grd._sized(_Transfer, operation=operation, key=key, key_length=len(key), window=window,
                              user_data=user_data)
        grd._checked(self.library.grd_submit, self.handle, byref(transfer), c_size_t(1), None)

    def reap(self, count, seconds):
        """{user_data: completion} of the next ones. Sleeps on the descriptor, and never in the library."""
        deadline = time.monotonic() + seconds
        found = {}
        while len(found) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f'{len(found)} completions of {count} within {seconds} s')
            self.wakes += 1
            completion, came = Completion(), c_size_t()
            code = self.library.grd_reap(self.handle, byref(completion), 1, 0, byref(came), None)
            assert code == 0, f'grd_reap: {code}'
            if came.value:
                found[completion.user_data] = completion
        return found

    def close(self):
        self.library.grd_queue_close(self.handle)
