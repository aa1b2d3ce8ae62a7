"""What may be registered, and what happens to every other descriptor: refused, closed, and the session goes on."""
import os
import socket
import tempfile

from lib import expect, tap, wait
from lib.memory import F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_WRITE, memory_fd
from lib.stage import Stage

SIZE = 1 << 20


def register(session, fds, **params):
    return session.call('region.register', fds=fds, **{'type': 'memfd', 'size': SIZE, **params})


def refused(session, fds, *names, **params):
    with expect.error(*names) as error:
        register(session, fds, **params)
    return error.raised


def regular_file():
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        return os.dup(file.fileno())


def shm_file():
    try:
        fd, path = tempfile.mkstemp(dir='/dev/shm')
    except OSError as error:
        raise tap.Skip(f'no file in /dev/shm: {error}') from None
    os.unlink(path)
    os.ftruncate(fd, SIZE)
    return fd


def check_refused(stage, fd, name='bad_fd', **params):
    """Refused with bad_fd, closed in the daemon, and the session goes on."""
    with stage.session() as session:
        error = refused(session, [fd], name, **params)
        os.close(fd)
        expect.equal(session.exists('x'), [False])
        return error


def test_without_seal(stage):
    """A memory file without F_SEAL_SHRINK"""
    error = check_refused(stage, memory_fd('unsealed', SIZE, 0))
    expect.holds('F_SEAL_SHRINK' in error.message, error)
    wait.until(lambda: stage.daemon.memfd_fds('unsealed') == 0, 'closed')


def test_other_seals_only(stage):
    """A memory file with other seals only"""
    check_refused(stage, memory_fd('grow', SIZE, F_SEAL_GROW))


def test_more_seals(stage):
    """A memory file with further seals is accepted"""
    with stage.session() as session:
        fd = memory_fd('sealed', SIZE, F_SEAL_SHRINK | F_SEAL_GROW)
        register(session, [fd])
        os.close(fd)


def test_truncated_afterwards(stage):
    """What was registered cannot be truncated any more, by nobody, and can be made larger"""
    with stage.memory(SIZE, fill=7) as memory, stage.session() as session:
        region = session.register(memory)
        for size in (0, SIZE - 4096):
            try:
                os.ftruncate(memory.fd, size)
                raise AssertionError(f'truncated to {size} bytes')
            except PermissionError:
                pass
        os.ftruncate(memory.fd, 2 * SIZE)
        session.set(region, SIZE - 100, 100, 'the end')
    expect.equal(stage.valkey.value('the end'), bytes([7]) * 100)


def test_write_seal(stage):
    """A write-sealed memory file cannot be written into: refused for rw, and for r only set works"""
    fd = memory_fd('written', SIZE, F_SEAL_SHRINK | F_SEAL_WRITE)
    with stage.session() as session:
        refused(session, [fd], 'bad_fd')
        try:
            region = register(session, [fd], access='r')['region']
        except Exception as error:
            raise tap.Skip(f'not even for reading: {error}') from None
        session.set(region, 0, 100, 'sealed')
    expect.equal(stage.valkey.value('sealed'), bytes(100))


def test_read_only_descriptor(stage):
    """A descriptor that is open for reading only: refused for rw"""
    fd = memory_fd('read only', SIZE)
    readable = os.open(f'/proc/self/fd/{fd}', os.O_RDONLY)
    os.close(fd)
    check_refused(stage, readable)


def test_regular_file(stage):
    """A regular file"""
    check_refused(stage, regular_file())


def test_shared_memory_file(stage):
    """A file in /dev/shm, which nobody can seal by default"""
    check_refused(stage, shm_file())


def test_pipe(stage):
    """A pipe"""
    read, write = os.pipe()
    check_refused(stage, read)
    os.close(write)


def test_socket(stage):
    """A socket"""
    one, two = socket.socketpair()
    check_refused(stage, os.dup(one.fileno()))
    one.close()
    two.close()


def test_directory(stage):
    """A directory, and a descriptor opened with O_PATH"""
    check_refused(stage, os.open('/', os.O_RDONLY))
    check_refused(stage, os.open('/', os.O_PATH))


def test_no_descriptor(stage):
    """No descriptor where one belongs"""
    with stage.session() as session:
        refused(session, [], 'bad_fd')
        expect.equal(session.exists('x'), [False])


def test_surplus_descriptors(stage):
    """More descriptors than one, or one where none belongs: refused, and all of them are closed"""
    with stage.session() as session:
        session.exists('x')
        fds = [memory_fd('surplus', SIZE) for _ in range(20)]
        for count in (2, 3, 20):
            refused(session, fds[:count], 'bad_fd')
        with expect.error('bad_fd'):
            session.call('status', fds=fds[:1])
        session.send_bytes(b'{', fds=fds[:2])
        expect.equal(session.wait_without_id().name, 'parse_error')
        wait.until(lambda: stage.daemon.memfd_fds('surplus') == 0, lambda: f'closed: {stage.daemon.fds()}')
        for fd in fds:
            os.close(fd)
        expect.equal(session.exists('x'), [False])


def test_too_small(stage):
    """A memory file smaller than it is said to be"""
    check_refused(stage, memory_fd('small', SIZE - 4096))
    check_refused(stage, memory_fd('small', SIZE), offset=4096)
    check_refused(stage, memory_fd('empty', 0))


def test_offsets(stage):
    """Offsets: pages only, and nothing that overflows"""
    fd = memory_fd('offsets', SIZE)
    with stage.session() as session:
        refused(session, [fd], 'out_of_range', size=4096, offset=1)
        refused(session, [fd], 'out_of_range', size=4096, offset=4097)
        for offset in (2**53 - 4096, 2**52):
            refused(session, [fd], 'bad_fd', 'out_of_range', size=4096, offset=offset)
        refused(session, [fd], 'bad_fd', 'over_limit', size=2**53 - 1, offset=4096)
        expect.equal(register(session, [fd], size=4096, offset=SIZE - 4096)['capacity'], 4096)
    os.close(fd)


def test_size_inside_a_page(stage):
    """A size that ends inside a page"""
    fd = memory_fd('odd', 5000)
    with stage.session() as session:
        result = register(session, [fd], size=5000)
        expect.equal((result['capacity'], result['page_size']), (5000, 4096))
        session.set(result['region'], 4990, 10, 'odd')
        with expect.error('out_of_range'):
            session.set(result['region'], 4990, 11, 'odd')
    os.close(fd)


def test_other_types(stage):
    """Types that are reserved or unknown"""
    fd = memory_fd('types', SIZE)
    with stage.session() as session:
        for kind in ('dmabuf', 'anything', ''):
            refused(session, [fd], 'invalid_params', type=kind)
        refused(session, [fd], 'invalid_params', access='w')
        wait.until(lambda: stage.daemon.memfd_fds('types') == 0, 'closed')
    os.close(fd)


def test_descriptor_may_be_closed_at_once(stage):
    """The client closes its descriptor at once; the region lives"""
    with stage.memory(SIZE, fill=9) as memory, stage.session() as session:
        fd = os.dup(memory.fd)
        number = session.request('region.register', fds=[fd], type='memfd', size=SIZE)
        os.close(fd)
        region = session.wait(number)['region']
        session.set(region, 0, 10, 'closed')
        expect.equal(stage.valkey.value('closed'), b'\x09' * 10)


def test_limits(stage):
    """Limits of the configuration: number and size of regions, pinned memory; each names itself"""
    daemon = stage.other_daemon(config={'limits.regions': 2, 'limits.region_bytes': '2M', 'memory.pinned_limit': '3M'})
    fds = [memory_fd('limits', 2 * SIZE) for _ in range(3)]
    with stage.session(daemon) as session:
        large = memory_fd('large', 4 * SIZE)
        expect.holds('region_bytes' in refused(session, [large], 'over_limit', size=4 * SIZE).message, 'region_bytes')
        first = register(session, fds[:1], size=2 * SIZE)['region']
        budget = refused(session, fds[1:2], 'over_budget', size=2 * SIZE)
        expect.equal((budget.data.get('used'), budget.data.get('limit'), budget.data.get('asked')),
                     (2 * SIZE, 3 * SIZE, 2 * SIZE))
        register(session, fds[:1], size=SIZE)  # shared: costs nothing
        expect.holds('regions' in refused(session, fds[2:3], 'over_limit', size=4096).message, 'regions')
        session.call('region.close', region=first)
        os.close(large)
    for fd in fds:
        os.close(fd)


tap.run(globals(), Stage())
