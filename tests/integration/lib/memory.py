"""Memory files, their mappings and patterns in them."""
import ctypes
import fcntl
import mmap
import os

F_ADD_SEALS = 1033
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 1, 2, 4, 8
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
PAGE = mmap.PAGESIZE
MIB = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
MADV_POPULATE_WRITE = 23


def populate(fd, start, length):
    """Allocates pages of a memory file, by a touch that this process does."""
    with mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=start) as pages:
        anchor = ctypes.c_char.from_buffer(pages)
        failed = _libc.madvise(ctypes.addressof(anchor), length, MADV_POPULATE_WRITE)
        error = ctypes.get_errno()
        del anchor
    if failed:
        raise OSError(error, f'populating {length} bytes: {os.strerror(error)}')


def reserve(fd, start, length, mode=0):
    """fallocate()."""
    if _libc.fallocate(fd, mode, start, length) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


def memory_fd(name, size, seals=F_SEAL_SHRINK, flags=0, sparse=False):
    """A memory file; all of its pages are allocated, as the daemon wants it, unless it is to be sparse."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if not sparse and size > 0:
        try:
            populate(fd, 0, size)
        except OSError:
            os.close(fd)
            raise
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Memory:
    """A memory file, mapped. `name` is how it shows in /proc."""

    def __init__(self, name, size, seals=F_SEAL_SHRINK, fill=None, flags=0, sparse=False):
        self.name = name
        self.size = size
        self.fd = memory_fd(name, size, seals, flags, sparse)
        self.map = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._anchor = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._anchor)
        if fill is not None:
            self.fill(fill)

    def close(self):
        del self._anchor
        self.map.close()
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, where):
        return self.map[where]

    def __setitem__(self, where, data):
        self.map[where] = data

    def fill(self, byte, start=0, end=None):
        _libc.memset(self.address + start, byte, (self.size if end is None else end) - start)

    def holds(self, byte, start=0, end=None):
        """True when every byte of [start, end) is `byte`."""
        end = self.size if end is None else end
        if start >= end:
            return True
        return self.map[start] == byte and \
            _libc.memcmp(self.address + start, self.address + start + 1, end - start - 1) == 0

    def pages_not(self, byte, start, end):
        """Number of pages in [start, end) with another byte than `byte`; for messages."""
        return sum(not self.holds(byte, at, min(at + PAGE, end)) for at in range(start, end, PAGE))

    def first_page_holding(self, byte, end=None):
        """Where the part of [0, end) that still holds `byte` begins, if pages were overwritten in order."""
        low, high = 0, (self.size if end is None else end) // PAGE
        while low < high:
            middle = (low + high) // 2
            if self.holds(byte, middle * PAGE, (middle + 1) * PAGE):
                high = middle
            else:
                low = middle + 1
        return low * PAGE

    def punch(self, start, length):
        """A hole: the pages are gone, and read as zeros. 0 or errno."""
        if _libc.fallocate(self.fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, start, length) == 0:
            return 0
        return ctypes.get_errno()


def noise(size, seed=1):
    """Bytes without a short period; the same for the same seed."""
    block = bytearray()
    state = (seed * 2654435761) & 0xffffffff or 1
    while len(block) < min(size, 65521):  # a prime: no page looks like another
        state ^= (state << 13) & 0xffffffff
        state ^= state >> 17
        state ^= (state << 5) & 0xffffffff
        block += state.to_bytes(4, 'little')
    block = bytes(block[:65521])
    return (block * (size // len(block) + 1))[:size]


BLOCK = 8 * MIB


def write_noise(memory, start, length, seed=1):
    """Writes bytes without a short period into memory, in blocks that all differ; for large windows."""
    block = bytearray(noise(min(length, BLOCK), seed))
    for number, at in enumerate(range(0, length, BLOCK)):
        part = min(BLOCK, length - at)
        mark = number.to_bytes(4, 'little')[:part]
        block[:len(mark)] = mark
        memory[start + at:start + at + part] = block[:part]


def same(memory, start, other, other_start, length):
    return _libc.memcmp(memory.address + start, other.address + other_start, length) == 0
