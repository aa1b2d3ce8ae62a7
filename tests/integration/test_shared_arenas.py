"""Processes of one user that register the same memory share one registration; each with what its own descriptor allows.
"""
import contextlib
import fcntl
import os

from lib import expect, tap, wait
from lib.memory import F_ADD_SEALS, MIB, PAGE
from lib.session import Session
from lib.stage import Stage
from lib.users import NOBODY
from lib.worker import Worker

WORKERS = 8
GIB = 1 << 30
SHARE = GIB // WORKERS
F_SEAL_FUTURE_WRITE = 0x10
HOLD_MS = 8000  # so long that all of them are sent meanwhile
SIZE = 16 * PAGE


@contextlib.contextmanager
def one_gib(stage):
    with open('/proc/meminfo', encoding='ascii') as file:
        free = {line.split(':')[0]: int(line.split()[1]) * 1024 for line in file}['MemAvailable']
    if free < 2 * GIB:
        raise tap.Skip(f'{free} bytes of memory are free, 2 GiB are needed')
    memory = stage.memory(GIB)
    try:
        yield memory
    finally:
        memory.close()


def daemon_for_workers(stage):
    return stage.other_daemon(config={'memory.pinned_limit': '4G', 'valkey.connections': WORKERS})


def start(exits, daemon, memory, count, **arguments):
    return [exits.enter_context(Worker(daemon, memory.fd, **arguments)) for _ in range(count)]


def used(daemon):
    """What the registered memory costs: (pinned bytes, arenas, calls of fi_mr_reg)."""
    with Session(daemon.admin_path, hello=False) as admin:
        status = admin.call('status')
    return status['memory']['pinned_bytes'], status['memory']['arenas'], status['fabric']['registrations_total']


def in_flight(daemon):
    with Session(daemon.admin_path, hello=False) as admin:
        return [transfer['state'] for transfer in admin.call('transfers')['transfers']]


def store_values(stage):
    for at in range(WORKERS):
        stage.valkey.store(f'value {at}', bytes([at + 1]) * MIB)


def transfer_at_once(stage, daemon, workers, regions):
    """Eight transfers, dealt out to the workers, each into its own part of the memory, held until all were sent."""
    with stage.valkey.faults(test_delay_before_reply_ms=HOLD_MS):
        numbers = []
        for at in range(WORKERS):
            turn = at % len(workers)
            number = workers[turn].ask('start_get', regions[turn], at * SHARE, MIB, f'value {at}')
            numbers.append((workers[turn], number))
        wait.until(lambda: in_flight(daemon) == ['sent'] * WORKERS, lambda: f'all sent: {in_flight(daemon)}')
    for worker, number in numbers:
        expect.equal(worker.ask('outcome', number), 'ok')


def cost_of(stage, memory, count):
    """What so many workers on one memory cost, before and after eight transfers at once."""
    daemon = daemon_for_workers(stage)
    with contextlib.ExitStack() as exits:
        workers = start(exits, daemon, memory, count)
        for worker in workers:
            worker.begin('register', size=GIB)
        answers = [worker.end() for worker in workers]
        expect.equal(sorted(answer['shared'] for answer in answers), [False] + [True] * (count - 1))
        before = used(daemon)
        memory.fill(0, 0, PAGE)
        transfer_at_once(stage, daemon, workers, [answer['region'] for answer in answers])
        after = used(daemon)
        for at in range(WORKERS):
            expect.holds(memory.holds(at + 1, at * SHARE, at * SHARE + MIB), f'value {at}')
    stage.end(daemon)
    return before, after


def test_eight_workers_cost_as_much_as_one(stage):
    """Eight processes on 1 GiB: pinned bytes and registrations of one process, and eight transfers at once"""
    store_values(stage)
    with one_gib(stage) as memory:
        one, eight = cost_of(stage, memory, 1), cost_of(stage, memory, WORKERS)
    expect.equal(one[0][:2], (GIB, 1), 'of one')
    expect.equal(eight, one, 'of eight')
    expect.holds(one[0][2] > 0, 'registrations are counted')


def leave(daemon, worker, region, killed):
    """One holder less: it closes its region, or is killed in the middle of a transfer."""
    with Session(daemon.admin_path, hello=False) as admin:
        before = admin.call('status')['memory']['regions']
        if killed:
            worker.kill()
        else:
            worker.ask('call', 'region.close', region=region)
        wait.until(lambda: admin.call('status')['memory']['regions'] == before - 1, 'one holder less')


def test_until_the_last_holder_is_gone(stage):
    """Another user's process has a registration of its own; the shared one ends with its last holder, killed or not"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    store_values(stage)
    daemon = daemon_for_workers(stage)
    with one_gib(stage) as memory, contextlib.ExitStack() as exits:
        workers = start(exits, daemon, memory, WORKERS)
        regions = [worker.ask('register', size=GIB) for worker in workers]
        expect.equal([region['shared'] for region in regions], [False] + [True] * (WORKERS - 1))
        expect.equal(used(daemon)[:2], (GIB, 1))
        stranger = start(exits, daemon, memory, 1, uid=NOBODY)[0]
        expect.equal(stranger.ask('register', size=GIB)['shared'], False)
        expect.equal(used(daemon)[:2], (2 * GIB, 2))
        with stage.valkey.faults(test_delay_before_reply_ms=HOLD_MS):
            for at in range(1, WORKERS, 2):
                workers[at].ask('start_get', regions[at]['region'], at * SHARE, MIB, f'value {at}')
            wait.until(lambda: in_flight(daemon) == ['sent'] * (WORKERS // 2), 'half of them are in a transfer')
            for at in range(WORKERS):
                leave(daemon, workers[at], regions[at]['region'], killed=at % 2 == 1)
                if at < WORKERS - 1:
                    expect.equal(used(daemon)[:2], (2 * GIB, 2), f'{WORKERS - 1 - at} holders are left')
        wait.until(lambda: used(daemon)[:2] == (GIB, 1), lambda: f'the shared one is gone: {used(daemon)}')
        stranger.kill()
        wait.until(lambda: used(daemon)[:2] == (0, 0), lambda: f'all is gone: {used(daemon)}')
        expect.equal(daemon.memfd_fds(memory.name), 0)


def register(session, fd, start=0, end=SIZE, **params):
    return session.call('region.register', fds=[fd], type='memfd', offset=start, size=end - start, **params)


def pinned(session):
    return session.call('status')['user']['pinned_bytes']


def test_ranges(stage):
    """A range inside a registered one shares it; one that only overlaps does not, and is charged by itself"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        wait.until(lambda: pinned(session) == 0, 'nothing is registered')
        register(session, memory.fd, 4 * PAGE, 12 * PAGE)
        for first, end in ((4, 12), (4, 5), (11, 12), (6, 9)):
            expect.equal(register(session, memory.fd, first * PAGE, end * PAGE)['shared'], True, (first, end))
        expect.equal(register(session, memory.fd, 4 * PAGE, 12 * PAGE - 5)['shared'], True, 'a part of the last page')
        expect.equal(pinned(session), 8 * PAGE)
        total = 8
        for first, end in ((3, 12), (4, 13), (0, 5), (11, 16), (0, 16)):
            expect.equal(register(session, memory.fd, first * PAGE, end * PAGE)['shared'], False, (first, end))
            total += end - first
            expect.equal(pinned(session), total * PAGE, (first, end))
        expect.equal(register(session, memory.fd, 3 * PAGE, 4 * PAGE)['shared'], True, 'inside a later one')


def test_descriptor_must_allow_the_access(stage):
    """A descriptor that is only readable gets no write access through what others registered; to read it shares"""
    with stage.memory(SIZE, fill=7) as memory, stage.session() as session:
        register(session, memory.fd)
        readable = os.open(f'/proc/self/fd/{memory.fd}', os.O_RDONLY)
        with expect.error('bad_fd') as refused:
            register(session, readable)
        expect.holds('O_RDWR' in refused.raised.message, refused.raised)
        result = register(session, readable, access='r')
        expect.equal(result['shared'], True)
        session.set(result['region'], 0, 100, 'seven')
        with expect.error('denied'):
            session.get(result['region'], 0, 100, 'seven')
        fcntl.fcntl(memory.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        with expect.error('bad_fd'):
            register(session, memory.fd)
        expect.equal(register(session, memory.fd, access='r')['shared'], True)
        os.close(readable)


def test_access_of_the_registration(stage):
    """A region for writing on what is registered for reading gets a registration of its own, and the next one shares"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        wait.until(lambda: pinned(session) == 0, 'nothing is registered')
        expect.equal(register(session, memory.fd, access='r')['shared'], False)
        expect.equal(register(session, memory.fd, access='r')['shared'], True)
        expect.equal(register(session, memory.fd)['shared'], False)
        expect.equal(pinned(session), 2 * SIZE)
        expect.equal(register(session, memory.fd)['shared'], True)
        expect.equal(pinned(session), 2 * SIZE)


tap.run(globals(), Stage())
