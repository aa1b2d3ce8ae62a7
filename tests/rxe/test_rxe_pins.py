"""Registered memory is pinned by the kernel: as much as status says, once for all who share it, within the limits."""
import resource

from lib import expect
from lib.memory import MIB
from lib.users import NOBODY

import rxe

SIZE = 8 * MIB
SHARERS = 8
LIMIT = 48 * MIB
LANES = 3
QUEUES = 17 * MIB  # libfabric's receive buffers for one endpoint of verbs;ofi_rxm: 1024 of a little over 16 KiB


def said(session):
    return session.call('status')['memory']['pinned_bytes']


def test_pinned_is_what_status_says(stage):
    """VmPin grows by what status says, and goes back when the regions are closed"""
    with stage.memory(SIZE) as one, stage.memory(3 * 4096) as two, stage.session() as session:
        idle = rxe.pinned(stage.daemon.pid)
        regions = [session.register(one)]
        expect.equal((rxe.pinned(stage.daemon.pid) - idle, said(session)), (SIZE, SIZE))
        regions.append(session.register(two))
        expect.equal((rxe.pinned(stage.daemon.pid) - idle, said(session)), (SIZE + 3 * 4096, SIZE + 3 * 4096))
        for region in regions:
            session.call('region.close', region=region)
        expect.equal((rxe.pinned(stage.daemon.pid) - idle, said(session)), (0, 0))


def test_shared_is_pinned_once(stage):
    """Eight clients that register one memory file pin it once, until the last has gone"""
    with stage.memory(SIZE) as memory:
        idle = rxe.pinned(stage.daemon.pid)
        sessions = [stage.session() for _ in range(SHARERS)]
        regions = [session.register(memory) for session in sessions]
        expect.equal(rxe.pinned(stage.daemon.pid) - idle, SIZE)
        for session, region in zip(sessions, regions):
            expect.equal(rxe.pinned(stage.daemon.pid) - idle, SIZE)
            session.call('region.close', region=region)
        expect.equal(rxe.pinned(stage.daemon.pid) - idle, 0)
        for session in sessions:
            session.close()


def test_transfers_leave_nothing(stage):
    """Transfers pin no memory of clients beyond the region, and nothing is left of it when the region is closed"""
    with stage.memory(SIZE, fill=1) as memory, stage.session() as session:
        region = session.register(memory)
        session.set(region, 0, SIZE, 'value')
        queues = rxe.pinned(stage.daemon.pid) - SIZE
        for _ in range(3):
            session.get(region, 0, SIZE, 'value')
        expect.equal(rxe.pinned(stage.daemon.pid), queues + SIZE)
        session.call('region.close', region=region)
        expect.equal((rxe.pinned(stage.daemon.pid), said(session)), (queues, 0))


def test_lanes(stage):
    """Each lane that the server has reached pins memory of libfabric's own, until it is destroyed: 17 MiB at most"""
    daemon = stage.other_daemon()
    stage.valkey.store('value', b'v' * 4096)
    with stage.memory(LANES * 4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        before = rxe.pinned(daemon.pid)
        with stage.valkey.faults(test_delay_before_reply_ms=10000):
            for number in [session.start_get(region, n * 4096, 4096, 'value') for n in range(LANES)]:
                session.wait(number, 60)
        lanes = session.call('status')['fabric']['lanes']
        expect.equal(lanes, LANES)
        queues = rxe.pinned(daemon.pid) - before
        print(f'# {queues} bytes for {lanes} lanes', flush=True)
        expect.holds(0 < queues <= LANES * QUEUES, f'{queues} bytes for {lanes} lanes')


def test_memlock(stage):
    """Under RLIMIT_MEMLOCK the budget refuses first, with its numbers; the kernel's own refusal is told too"""
    daemon = stage.other_daemon(uid=NOBODY, limits=[(resource.RLIMIT_MEMLOCK, LIMIT)])
    with stage.memory(LIMIT) as memory, stage.session(daemon) as session:
        memlock = session.call('status')['memory']['memlock']
        expect.equal((memlock['source'], memlock['rlimit'], memlock['pins']), ('RLIMIT_MEMLOCK', LIMIT, True))
        expect.holds(0 < memlock['limit'] < LIMIT, memlock)
        total = session.call('status')['fabric']['registrations_total']
        with expect.error('over_budget') as refused:
            session.register(memory)
        expect.equal([refused.raised.data[name] for name in ('budget', 'limit', 'asked')],
                     ['memlock', memlock['limit'], LIMIT])
        expect.equal(session.call('status')['fabric']['registrations_total'], total, 'registrations that were tried')

        region = session.register(memory, size=SIZE)
        memory[:5] = b'value'
        session.set(region, 0, 5, 'of nobody')
        expect.equal(stage.valkey.value('of nobody'), b'value')
        session.call('region.close', region=region)

        held = rxe.pinned(daemon.pid)
        resource.prlimit(daemon.pid, resource.RLIMIT_MEMLOCK, (held + SIZE - 4096, LIMIT))
        with expect.error('over_budget') as refused:
            session.register(memory, size=SIZE)
        expect.equal(refused.raised.data['budget'], 'memlock')
        expect.equal((rxe.pinned(daemon.pid), said(session)), (held, 0))


rxe.run(globals(), rxe.Rxe())
