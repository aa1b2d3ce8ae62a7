"""Memory on huge pages; and no load or store of the daemon meets a page that is missing because none is left."""
import errno
import os

from lib import expect, grd, tap, wait
from lib.huge_pages import HUGE, Pages, pool
from lib.memory import PAGE, memory_fd
from lib.stage import Stage

FILL, VALUE = 0x21, 0x5A
SIZES = (1, 100, 5000, 9000, 70_000, 1 << 20)


def huge(stage, pages, **arguments):
    try:
        return stage.memory(pages * HUGE, flags=os.MFD_HUGETLB, **arguments)
    except OSError as error:
        raise tap.Skip(f'no memory file of {pages} huge pages: {error}') from None


def test_round_trip(stage):
    """A region on huge pages: page size, offsets, both directions"""
    with Pages(2), huge(stage, 2, fill=VALUE) as memory, stage.session() as session:
        result = session.call('region.register', fds=(memory.fd,), type='memfd', size=2 * HUGE)
        expect.equal(result['page_size'], HUGE)
        region = result['region']
        with expect.error('out_of_range'):
            session.register(memory, offset=PAGE, size=HUGE)
        session.set(region, HUGE - 100, 1000, 'huge')
        expect.equal(stage.valkey.value('huge'), bytes([VALUE]) * 1000)
        memory.fill(0)
        session.get(region, HUGE - 7, 1000, 'huge')
        expect.holds(memory.holds(VALUE, HUGE - 7, HUGE + 993) and memory.holds(0, HUGE + 993), 'value')
        session.close()


def allocated(memory):
    """Pages."""
    return os.fstat(memory.fd).st_blocks * 512 // HUGE


def pinned(session):
    return session.call('status')['memory']['pinned_bytes']


def nothing_is_registered(session):
    wait.until(lambda: pinned(session) == 0, 'nothing is registered')


def test_size_inside_a_page(stage):
    """A region that ends inside a huge page is charged whole pages; windows end where the region does"""
    size = HUGE + HUGE // 2
    with Pages(2), huge(stage, 2, fill=VALUE) as memory, stage.session() as session:
        nothing_is_registered(session)
        result = session.call('region.register', fds=(memory.fd,), type='memfd', size=size)
        region = result['region']
        expect.equal((result['capacity'], result['page_size'], pinned(session)), (size, HUGE, 2 * HUGE))
        session.set(region, size - 1, 1, 'last byte')
        session.get(region, size - 1, 1, 'last byte')
        session.set(region, HUGE - 3, size - HUGE + 3, 'to the end')
        expect.equal(stage.valkey.value('last byte'), bytes([VALUE]))
        for offset, length in ((size - 1, 2), (size, 1), (0, size + 1)):
            with expect.error('out_of_range') as refused:
                session.set(region, offset, length, 'too far')
            expect.equal(refused.raised.data['capacity'], size)


def test_missing_pages(stage):
    """Huge pages that are not allocated: counted where they can be, refused where nobody can tell, or populated"""
    with Pages(4), huge(stage, 4, sparse=True) as memory, stage.session() as session:
        nothing_is_registered(session)
        for access in ('rw', 'r'):
            with expect.error('not_populated') as refused:
                session.register(memory, access=access)
            expect.equal((refused.raised.data['missing_pages'], refused.raised.data['pages']), (4, 4))
        memory[0] = VALUE
        memory[3 * HUGE] = VALUE
        with expect.error('not_populated') as refused:
            session.register(memory, size=3 * HUGE)
        expect.holds('at least 1 of 3 pages' in refused.raised.message, refused.raised)
        with expect.error('not_populated') as refused:
            session.register(memory, size=HUGE)
        expect.holds('the whole file' in refused.raised.message, refused.raised)
        expect.equal((pinned(session), allocated(memory)), (0, 2), 'the daemon allocated nothing')
        session.register(memory, size=HUGE, populate=True)
        expect.equal(allocated(memory), 2, 'it was there')
        session.register(memory, offset=HUGE, populate=True)
        expect.equal(allocated(memory), 4)
        session.register(memory)


def test_library_populates_a_part(stage):
    """The library populates a part of a file of huge pages and registers it, with the rest left out"""
    with Pages(3), huge(stage, 3, sparse=True) as memory, grd.Client(stage.daemon.path) as client:
        with expect.error('not_populated'):
            client.register(memory.fd, HUGE, HUGE)
        client.register(memory.fd, HUGE, HUGE, flags=grd.POPULATE).close()
        expect.equal(allocated(memory), 1)


def test_populate_without_a_page(stage):
    """populate where the pool has too few pages: an error, and nothing is charged"""
    with Pages(2), huge(stage, 1, fill=FILL) as good, stage.session() as session:
        nothing_is_registered(session)
        with sparse_without_pages(stage, 2) as memory:
            with expect.error('system') as refused:
                session.register(memory, populate=True)
            expect.equal(refused.raised.data['errno'], errno.ENOMEM)
            expect.equal(pinned(session), 0)
        region = session.register(good)
        session.set(region, 0, 1000, 'good')
        session.get(region, 0, 1000, 'good')


def sparse_without_pages(stage, pages):
    """A file for which the pool has not enough pages, and that nobody mapped, which would set them aside."""
    try:
        fd = memory_fd('more than there are', (pool('free_hugepages') + pages) * HUGE, flags=os.MFD_HUGETLB, sparse=True)
    except OSError as error:
        raise tap.Skip(f'no sparse memory file of huge pages: {error}') from None
    return Unmapped(fd)


class Unmapped:
    """As much of lib.memory.Memory as registering needs."""

    def __init__(self, fd):
        self.fd = fd
        self.size = os.fstat(fd).st_size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def test_deadline_without_a_page(stage):
    """Where the server would wait for ever, transfers on a hole that no page is left for end by their deadline"""
    patient = stage.other_valkey()
    daemon = stage.other_daemon(patient)
    patient.store('value', bytes([VALUE]) * 100_000)
    with Pages(2), huge(stage, 2, fill=FILL) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        expect.equal(memory.punch(HUGE, HUGE), 0)
        free = pool('free_hugepages') - pool('resv_hugepages')
        if free < 1:
            raise tap.Skip('the kernel keeps the page of a hole')
        with huge(stage, free, fill=1):
            with expect.error('deadline', 'lost', 'server_error'):
                session.get(region, HUGE, 100_000, 'value', deadline_ms=500)
            with expect.error('deadline') as ended:
                session.set(region, HUGE, 100_000, 'from a hole', deadline_ms=6000)  # a connection is made first
            expect.equal(ended.raised.data['may_have_run'], True)
            session.set(region, 0, 1000, 'good')
            session.get(region, 1000, 1000, 'good')
            expect.equal(patient.value('good'), bytes([FILL]) * 1000)


def test_no_page_left(stage):
    """A hole that no page is left for: transfers of any size on it fail with an error, and nothing else happens"""
    for size in SIZES:
        stage.valkey.store(f'value {size}', bytes([VALUE]) * size)
    with Pages(2), huge(stage, 2, fill=FILL) as memory, stage.session() as session:
        region = session.register(memory)
        expect.equal(memory.punch(HUGE, HUGE), 0)
        free = pool('free_hugepages') - pool('resv_hugepages')
        if free < 1:
            raise tap.Skip('the kernel keeps the page of a hole')
        with huge(stage, free, fill=1):
            with stage.valkey.faults(op_timeout_ms=300):  # the server waits for bytes that cannot come
                for size in SIZES:
                    with expect.error('server_error', 'lost'):
                        session.get(region, HUGE, size, f'value {size}')
                    with expect.error('server_error', 'lost'):
                        session.set(region, HUGE, size, 'from a hole')
                    expect.holds(stage.daemon.alive(), f'the daemon died of {size} bytes')
            expect.equal(stage.valkey.call('EXISTS', 'from a hole'), 0)
            session.set(region, 0, 1000, 'from the other page')
            expect.equal(stage.valkey.value('from the other page'), bytes([FILL]) * 1000)
        for size in SIZES:
            session.get(region, HUGE, size, f'value {size}')
            expect.holds(memory.holds(VALUE, HUGE, HUGE + size), 'value')
        session.close()


def test_over_tcp(stage):
    """By the fallback over TCP: huge pages both ways; a hole that no page is left for is an error of a get at once"""
    daemon = stage.other_daemon(config={'valkey.fallback': 'tcp'},
                                environment={'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'})
    for size in SIZES:
        stage.valkey.store(f'value {size}', bytes([VALUE]) * size)
    with Pages(2), huge(stage, 2, fill=FILL) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        wait.until(lambda: session.call('status')['daemon']['usable'], 'the server is up')
        for size in SIZES:
            expect.equal(session.get(region, HUGE - 7, size, f'value {size}')['path'], 'tcp')
            expect.holds(memory.holds(VALUE, HUGE - 7, HUGE - 7 + size), 'value')
            expect.equal(session.set(region, HUGE - 7, size, 'back')['path'], 'tcp')
            expect.equal(stage.valkey.value('back'), bytes([VALUE]) * size)
        expect.equal(memory.punch(HUGE, HUGE), 0)
        free = pool('free_hugepages') - pool('resv_hugepages')
        if free < 1:
            raise tap.Skip('the kernel keeps the page of a hole')
        with huge(stage, free, fill=1):
            for size in SIZES:
                with expect.error('system') as failed:
                    session.get(region, HUGE, size, f'value {size}')
                expect.equal((failed.raised.data['errno'], failed.raised.data['outcome']),
                             (errno.EFAULT, 'memory failed'))
            session.set(region, HUGE, 100, 'from a hole')
            expect.equal(stage.valkey.value('from a hole'), bytes(100))
        session.get(region, HUGE, 100, 'value 100')
        expect.holds(memory.holds(VALUE, HUGE, HUGE + 100), 'value')


tap.run(globals(), Stage())
