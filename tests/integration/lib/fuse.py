"""A file system in user space with one file, whose close() can be made to wait. Raw protocol; needs root."""
import ctypes
import errno
import os
import stat
import struct
import threading

from lib.paths import Missing

LOOKUP, FORGET, GETATTR, OPEN, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 17, 18, 25, 26
ROOT, FILE = 1, 2
MNT_DETACH = 2
REQUEST_BYTES = 1 << 17
FLUSH_SECONDS = 100  # longer than anybody waits for an answer of a daemon whose loop waits for it

_libc = ctypes.CDLL(None, use_errno=True)


class Fuse:
    """Mounted at `folder`; the file is `folder`/file, of `size` bytes."""

    def __init__(self, folder, size):
        self.folder = folder
        self.size = size
        self.flush = threading.Event()
        self.flush.set()
        try:
            self.fd = os.open('/dev/fuse', os.O_RDWR)
        except OSError as error:
            raise Missing(f'/dev/fuse: {error}') from None
        options = f'fd={self.fd},rootmode=40000,user_id=0,group_id=0'.encode()
        if _libc.mount(b'grd-test', folder.encode(), b'fuse', 0, options) != 0:
            os.close(self.fd)
            raise Missing(f'no FUSE can be mounted: {os.strerror(ctypes.get_errno())}')
        self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(4)]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flush.set()
        _libc.umount2(self.folder.encode(), MNT_DETACH)
        for thread in self.threads:
            thread.join(5)
        os.close(self.fd)

    def open(self):
        return os.open(os.path.join(self.folder, 'file'), os.O_RDWR)

    def _serve(self):
        while True:
            try:
                request = os.read(self.fd, REQUEST_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # unmounted
            opcode, unique, node = struct.unpack_from('=4xIQQ', request)
            if opcode == FORGET:
                continue
            if opcode == FLUSH:
                self.flush.wait(FLUSH_SECONDS)
            error, body = self._answer(opcode, node)
            try:
                os.write(self.fd, struct.pack('=IiQ', 16 + len(body), -error, unique) + body)
            except OSError:
                pass  # who asked has gone

    def _attributes(self, node):
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o666
        return struct.pack('=QQQQQQ10I', node, self.size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, opcode, node):
        if opcode == INIT:
            return 0, struct.pack('=IIIIHHIIHHI28x', 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0)
        if opcode == LOOKUP:
            return 0, struct.pack('=QQQQII', FILE, 0, 60, 60, 0, 0) + self._attributes(FILE)
        if opcode == GETATTR:
            return 0, struct.pack('=QII', 60, 0, 0) + self._attributes(node)
        if opcode == OPEN:
            return 0, struct.pack('=QII', 1, 0, 0)
        if opcode in (RELEASE, FLUSH):
            return 0, b''
        return errno.ENOSYS, b''
