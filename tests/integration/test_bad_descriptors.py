"""Descriptors that cannot be served: a clear error, then the same connection works, and the daemon holds nothing more."""
import errno
import os
import resource
import socket
import tempfile
import time

from lib import expect, tap
from lib.fuse import Fuse
from lib.guard import Guard
from lib.lingering import LINGER_SECONDS, Lingering
from lib.memory import F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_WRITE, memory_fd
from lib.session import Session
from lib.stage import Stage

SIZE = 1 << 20
CONFIG = {'valkey.connections': 1}
guards = {}


def guard_of(stage):
    """One for the whole file: it must stay unharmed to the end."""
    if 'one' not in guards or not guards['one'].daemon.alive():
        guards['one'] = Guard(stage)
    return guards['one']


def check(stage, fd, *words, name='bad_fd', close=True, **params):
    """Register refuses the descriptor with these words."""
    guard = guard_of(stage)
    params = {'type': 'memfd', 'size': SIZE, **params}
    number = guard.session.request('region.register', fds=[fd], **params)
    if close:
        os.close(fd)
    return guard.refuses(number, name, *words, what=str(params))


def test_unsealed(stage):
    """Memory files without F_SEAL_SHRINK: the error names the seal"""
    check(stage, memory_fd('unsealed', SIZE, 0), 'F_SEAL_SHRINK')
    check(stage, memory_fd('grow', SIZE, F_SEAL_GROW), 'F_SEAL_SHRINK')
    fd = os.memfd_create('unsealable', os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    check(stage, fd, 'MFD_ALLOW_SEALING')


def test_short(stage):
    """Memory files that are too small: the error names sizes"""
    check(stage, memory_fd('short', SIZE - 1), SIZE, SIZE - 1)
    check(stage, memory_fd('short', SIZE), SIZE, 4096, offset=4096)
    check(stage, memory_fd('empty', 0), SIZE, size=SIZE)


def test_no_memory_file(stage):
    """A regular file, a file of /dev/shm, a pipe, a directory, O_PATH, an epoll descriptor"""
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        check(stage, os.dup(file.fileno()), 'memfd_create')  # on a tmpfs it has seals, but none can be added
    if os.access('/dev/shm', os.W_OK):
        with tempfile.TemporaryFile(dir='/dev/shm') as file:
            file.truncate(SIZE)
            check(stage, os.dup(file.fileno()), 'memfd_create')
    else:
        print('# no /dev/shm here')
    read, write = os.pipe()
    check(stage, read, 'no memory file')
    check(stage, write, 'no memory file')
    check(stage, os.open('/', os.O_RDONLY | os.O_DIRECTORY), 'no memory file')
    memory = memory_fd('path', SIZE)
    check(stage, os.open(f'/proc/self/fd/{memory}', os.O_PATH), close=True)
    os.close(memory)


def test_socket(stage):
    """Sockets; one whose close() waits for unsent data (SO_LINGER) does not hold up the loop"""
    one, two = socket.socketpair()
    check(stage, one.detach(), 'no memory file')
    two.close()
    guard = guard_of(stage)
    with Lingering() as lingering:
        fd = lingering.fd()
        guard.daemon.process.freeze()  # so that ours is closed first
        number = guard.session.request('region.register', fds=[fd], type='memfd', size=SIZE)
        os.close(fd)
        guard.daemon.process.thaw()
        begun = time.monotonic()
        with expect.error('bad_fd'):
            guard.session.wait(number)
        guard.moves()
        expect.holds(time.monotonic() - begun < LINGER_SECONDS / 2, 'close() of the socket held up the daemon')
    guard.as_before('a socket that lingered')


def test_fuse(stage):
    """A file of a FUSE whose close() waits: refused at once, and the loop goes on"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to mount a FUSE')
    guard = guard_of(stage)
    with Fuse(stage.new_folder(), SIZE) as fuse:
        fd = fuse.open()
        fuse.flush.clear()
        number = guard.session.request('region.register', fds=[fd], type='memfd', size=SIZE)
        with expect.error('bad_fd'):
            guard.session.wait(number)
        guard.moves()
        guard.moves()
        fuse.flush.set()
        os.close(fd)
        guard.unharmed('FUSE')


def test_access(stage):
    """Read-only, write-only and write-sealed descriptors: the error says what access needs"""
    memory = memory_fd('access', SIZE)
    check(stage, os.open(f'/proc/self/fd/{memory}', os.O_RDONLY), 'rw', 'O_RDWR')
    check(stage, os.open(f'/proc/self/fd/{memory}', os.O_WRONLY), '"r"', access='r')
    os.close(memory)
    check(stage, memory_fd('sealed', SIZE, F_SEAL_SHRINK | F_SEAL_WRITE), 'F_SEAL_WRITE')


def test_types(stage):
    """Types and accesses that there are not"""
    for kind in ('dmabuf', 'anything', ''):
        check(stage, memory_fd('types', SIZE), 'memfd', name='invalid_params', type=kind)
    check(stage, memory_fd('types', SIZE), '"rw"', '"r"', name='invalid_params', access='w')


def test_ranges(stage):
    """Sizes and offsets: zero, negative, inside a page, overflowing, above every limit"""
    for params, name, *words in (
            ({'size': 0}, 'invalid_params', '"size"', 'from 1', 'the integer 0'),
            ({'size': -1}, 'invalid_params', '"size"', 'the integer -1'),
            ({'size': 2**53}, 'invalid_params', '"size"', 2**53 - 1),
            ({'offset': -4096}, 'invalid_params', '"offset"', 'the integer -4096'),
            ({'offset': 1}, 'out_of_range', 'offset 1', 'page size'),
            ({'offset': 2**53 - 4096, 'size': 8192}, 'bad_fd', 'too small', 2**53 - 4096),
            ({'size': 2**53 - 1}, 'over_limit', 'region_bytes', 2**53 - 1),
            ({'size': 4096.0}, 'invalid_params', '"size"', 'fraction')):
        check(stage, memory_fd('ranges', SIZE), *words, name=name, **params)


def test_count(stage):
    """None, two and ten descriptors; one with a method that takes none: all are closed"""
    guard = guard_of(stage)
    number = guard.session.request('region.register', type='memfd', size=SIZE)
    guard.refuses(number, 'bad_fd', 'one descriptor', 'carried 0')
    fds = [memory_fd('count', SIZE) for _ in range(10)]
    for count in (2, 10):
        number = guard.session.request('region.register', fds=fds[:count], type='memfd', size=SIZE)
        guard.refuses(number, 'bad_fd', 'one descriptor', f'carried {count}')
    for method, params in (('status', {}), ('keys.exists', {'keys': ['x']}), ('region.close', {'region': 1}),
                           ('transfer.get', {'region': guard.region, 'offset': 0, 'length': 10, 'key': 'guard'}),
                           ('transfer.cancel', {'id': 1})):
        number = guard.session.request(method, fds=fds[:1], **params)
        guard.refuses(number, 'bad_fd', method, 'no descriptor', 'carried 1')
    guard.refuses_packet(b'{', 'parse_error', fds=fds)
    guard.refuses_packet(b'[]', 'invalid_request', 'batch', fds=fds[:2])
    guard.refuses_packet(b' ' * 65537, 'too_large', '65536', fds=fds)
    for fd in fds:
        os.close(fd)


def lowest_free(daemon):
    used = {int(number) for number in os.listdir(f'/proc/{daemon.pid}/fd')}
    return next(number for number in range(len(used) + 1) if number not in used)


class full:
    """The daemon may open no further descriptor."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.before = None

    def __enter__(self):
        self.before = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (lowest_free(self.daemon), self.before[1]))

    def __exit__(self, *_):
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, self.before)


def test_no_descriptor_left(stage):
    """The daemon is at its RLIMIT_NOFILE: what it cannot receive is refused by name, and later works"""
    guard = guard_of(stage)
    fd = memory_fd('truncated', SIZE)
    with full(guard.daemon):
        for fds in ([fd], [fd, fd]):
            number = guard.session.request('region.register', fds=fds, type='memfd', size=SIZE)
            error = guard.refuses(number, 'system', 'RLIMIT_NOFILE', what='MSG_CTRUNC')
            expect.equal(error.data.get('errno'), errno.EMFILE)
        error = guard.refuses(guard.session.request('status', fds=[fd]), 'system', 'RLIMIT_NOFILE')
    region = guard.session.call('region.register', fds=[fd], type='memfd', size=SIZE)['region']
    guard.session.call('region.close', region=region)
    guard.unharmed('after MSG_CTRUNC')
    os.close(fd)


def test_dead_sender(stage):
    """A client that sends descriptors and is gone before they are looked at"""
    guard = guard_of(stage)
    with Lingering() as lingering:
        session = Session(guard.daemon.path)
        guard.daemon.process.freeze()
        for _ in range(3):
            fds = [memory_fd('dead', SIZE), lingering.fd()]
            session.request('region.register', fds=fds[:1], type='memfd', size=SIZE)
            session.request('status', fds=fds)
            for fd in fds:
                os.close(fd)
        session.close()
        guard.daemon.process.thaw()
        guard.moves()
    guard.as_before('a dead sender')


tap.run(globals(), Stage(daemon_config=CONFIG))
