"""The daemon registers memory that was touched already, and is the first to touch it only where it is asked to."""
import os

from lib import expect, grd, tap, wait
from lib.memory import FALLOC_FL_KEEP_SIZE, MIB, PAGE, memory_fd, populate, reserve
from lib.stage import Stage
from lib.users import NOBODY

SIZE = 1 << 20
PAGES = SIZE // PAGE


def allocated(fd):
    return os.fstat(fd).st_blocks * 512


def register(session, fd, size=SIZE, **params):
    return session.call('region.register', fds=[fd], type='memfd', size=size, **params)


def refused(session, fd, missing, pages=PAGES, **params):
    """Refused with the number of missing pages; nothing is allocated, charged or left open."""
    wait.until(lambda: session.call('status')['memory']['arenas'] == 0, 'what was before is gone')
    before = allocated(fd), session.call('status')['memory']
    with expect.error('not_populated') as error:
        register(session, fd, **params)
    raised = error.raised
    if missing is not None:
        expect.equal((raised.data['missing_pages'], raised.data['pages']), (missing, pages))
        expect.holds(f'{missing} of {pages} pages' in raised.message, raised.message)
    expect.holds('populate: true' in raised.message, raised.message)
    expect.equal((allocated(fd), session.call('status')['memory']), before, 'nothing is left')
    return raised


def test_sparse(stage):
    """A file without pages: refused for both accesses with the numbers; populated by the client it passes"""
    fd = memory_fd('sparse', SIZE, sparse=True)
    with stage.session() as session:
        for access in ('rw', 'r'):
            refused(session, fd, PAGES, access=access)
        populate(fd, 0, SIZE)
        region = register(session, fd)['region']
        session.set(region, 0, SIZE, 'value')
        session.get(region, 0, SIZE, 'value')
        session.call('region.close', region=region)
    os.close(fd)


def test_one_page_missing(stage):
    """One page missing in the middle of 200 MiB is found; a region beside it passes"""
    size = 200 * MIB
    with stage.memory(size) as memory, stage.session() as session:
        expect.equal(memory.punch(100 * MIB, PAGE), 0)
        refused(session, memory.fd, 1, size // PAGE, size=size)
        register(session, memory.fd, size=100 * MIB)
        register(session, memory.fd, size=100 * MIB - PAGE, offset=100 * MIB + PAGE)
        memory[100 * MIB] = 1
        register(session, memory.fd, size=size)


def test_set_aside(stage):
    """Pages that fallocate() set aside are nobody's yet"""
    fd = memory_fd('set aside', SIZE, sparse=True)
    reserve(fd, 0, SIZE, FALLOC_FL_KEEP_SIZE)
    with stage.session() as session:
        refused(session, fd, PAGES)
    os.close(fd)


def test_mode_that_hides_the_pages(stage):
    """A file whose mode keeps the daemon from seeing its pages: refused with what to do, also if all are there"""
    daemon = stage.other_daemon(**as_nobody_arguments())
    fd = memory_fd('hidden', SIZE)
    os.fchmod(fd, 0o644)
    with stage.session(daemon) as session:
        expect.holds('fchmod' in refused(session, fd, None).message, 'what to do')
        os.fchmod(fd, 0o666)
        region = register(session, fd)['region']
        os.fchmod(fd, 0o644)
        session.call('region.close', region=region)
        register(session, fd, populate=True)
    os.close(fd)


def as_nobody_arguments():
    if os.getuid() != 0:
        raise tap.Skip('needs root to start a daemon of another user')
    return {'uid': NOBODY}


def test_populate(stage):
    """populate: the daemon allocates what is missing, and nothing else"""
    for access in ('rw', 'r'):
        fd = memory_fd('populate', 2 * SIZE, sparse=True)
        with stage.session() as session:
            os.pwrite(fd, b'kept', SIZE + 8192)
            register(session, fd, offset=SIZE, access=access, populate=True)
            expect.equal(allocated(fd), SIZE, 'the range is allocated')
            expect.equal(os.pread(fd, 4, SIZE + 8192), b'kept')
        os.close(fd)


def test_populate_is_forbidden(stage):
    """[limits] populate = no: a client that asks for it is denied, whatever is missing; others register as ever"""
    daemon = stage.other_daemon(config={'limits.populate': 'no'})
    fd = memory_fd('forbidden', SIZE, sparse=True)
    with stage.session(daemon) as session, stage.memory(SIZE) as memory:
        for asked in (fd, memory.fd):
            with expect.error('denied') as error:
                register(session, asked, populate=True)
            expect.holds('[limits] populate' in error.raised.message, error.raised)
        expect.equal(allocated(fd), 0)
        refused(session, fd, PAGES)
        register(session, memory.fd)
    os.close(fd)


def test_populate_comes_after_the_charge(stage):
    """What exceeds the budget is refused before a page is allocated"""
    daemon = stage.other_daemon(config={'memory.pinned_limit': SIZE})
    fd = memory_fd('charged', 2 * SIZE, sparse=True)
    with stage.session(daemon) as session:
        with expect.error('over_budget'):
            register(session, fd, size=2 * SIZE, populate=True)
        expect.equal(allocated(fd), 0)
    os.close(fd)


def test_share_is_not_looked_at_again(stage):
    """A region that shares what was registered passes without a look, and populate does nothing then"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        register(session, memory.fd)
        expect.equal(memory.punch(8 * PAGE, 4 * PAGE), 0)
        for params in ({}, {'populate': True}):
            expect.equal(register(session, memory.fd, **params)['shared'], True)
            expect.equal(allocated(memory.fd), SIZE - 4 * PAGE)
        session.call('region.close', region=1)


def test_refused_and_populating_together(stage):
    """Of two that register a sparse file at once, the one that asks to populate gets it"""
    with stage.session() as session:
        for _ in range(50):
            fd = memory_fd('together', SIZE, sparse=True)
            plain = session.request('region.register', fds=[fd], type='memfd', size=SIZE)
            asked = session.request('region.register', fds=[fd], type='memfd', size=SIZE, populate=True)
            region = session.wait(asked)['region']
            expect.holds(session.outcome(plain) in ('ok', 'not_populated'), 'the other')
            session.call('region.close', region=region)
            if session.outcome(plain) == 'ok':
                session.call('region.close', region=session.wait(plain)['region'])
            os.close(fd)


def test_library(stage):
    """The library populates what it makes; for the rest its flags say who does, and the refusal is told"""
    fd = memory_fd('library', SIZE, sparse=True)
    with grd.Client(stage.daemon.path) as client:
        client.create(SIZE).close()
        for attempt in (lambda: client.create(SIZE, grd.NO_POPULATE), lambda: client.register(fd)):
            with expect.error('not_populated') as error:
                attempt()
            expect.holds(f'{PAGES} of {PAGES} pages' in str(error.raised), error.raised)
        client.create(SIZE, grd.NO_POPULATE | grd.DAEMON_POPULATES).close()
        region = client.register(fd, flags=grd.DAEMON_POPULATES)
        expect.equal(allocated(fd), SIZE)
        region.close()
        other = memory_fd('other', SIZE, sparse=True)
        for access in (grd.ACCESS_READ, grd.ACCESS_READ_WRITE):
            client.register(other, flags=grd.POPULATE, access=access).close()
            expect.equal(allocated(other), SIZE)
        os.close(other)
    os.close(fd)


def test_refused_before_it_is_allocated(stage):
    """The library allocates the pages of a large region only when limits, quotas and budgets have room for it"""
    size = 256 * MIB
    fd = memory_fd('refused', size, sparse=True)
    for config, name in (({'memory.pinned_limit': size - MIB}, 'over_budget'),
                         ({'limits.region_bytes': size - MIB}, 'over_limit'),
                         ({'policy.pinned_bytes': size - MIB}, 'over_quota')):
        daemon = stage.other_daemon(config=config)
        with grd.Client(daemon.path) as client:
            with expect.error(name):
                client.register(fd, flags=grd.POPULATE)
            expect.equal(allocated(fd), 0, name)
    with grd.Client(stage.daemon.path) as client:
        client.register(fd, flags=grd.POPULATE).close()
        expect.equal(allocated(fd), size)
        client.register(fd, flags=grd.POPULATE).close()
        client.create(size).close()
    os.close(fd)


tap.run(globals(), Stage())
