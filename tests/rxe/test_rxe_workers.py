"""Eight worker processes without rights share one arena: it is pinned once, and all of them move values at once."""
import contextlib
import resource

from lib import expect, wait
from lib.memory import MIB
from lib.session import Session
from lib.users import NOBODY
from lib.worker import Worker

import rxe

WORKERS = 8
SHARE = 2 * MIB  # each worker's part of the memory
SIZE = WORKERS * SHARE
MEMLOCK = 64 * 1024
HOLD_MS = 10000


def costs(daemon):
    """What the registered memory costs: (bytes that the kernel has pinned, what status says, arenas)."""
    with Session(daemon.admin_path, hello=False) as admin:
        memory = admin.call('status')['memory']
    return rxe.pinned(daemon.pid), memory['pinned_bytes'], memory['arenas']


def in_flight(daemon):
    with Session(daemon.admin_path, hello=False) as admin:
        return [transfer['state'] for transfer in admin.call('transfers')['transfers']]


def start(exits, daemon, memory, count):
    return [exits.enter_context(Worker(daemon, memory.fd, uid=NOBODY, limits=[(resource.RLIMIT_MEMLOCK, MEMLOCK)]))
            for _ in range(count)]


def register(workers):
    for worker in workers:
        worker.begin('register', size=SIZE)
    return [worker.end()['region'] for worker in workers]


def close(workers, regions):
    for worker, region in zip(workers, regions):
        worker.ask('call', 'region.close', region=region)


def move_at_once(stage, daemon, workers, regions):
    """Eight values, each into another part of the memory. The server holds its replies until all transfers are sent."""
    with stage.valkey.faults(test_delay_before_reply_ms=HOLD_MS):
        numbers = [worker.ask('start_get', regions[at], at * SHARE, SHARE, f'value {at}')
                   for at, worker in enumerate(workers)]
        wait.until(lambda: in_flight(daemon) == ['sent'] * WORKERS, lambda: f'all sent: {in_flight(daemon)}', 60)
    for worker, number in zip(workers, numbers):
        expect.equal(worker.ask('outcome', number, 120), 'ok')


def test_eight_cost_as_much_as_one(stage):
    """Eight processes, memlock 64 KiB, no way to the devices: pinned is what one needs; all move values at once"""
    for at in range(WORKERS):
        stage.valkey.store(f'value {at}', bytes([at + 1]) * SHARE)
    daemon = stage.other_daemon(config={'valkey.connections': WORKERS})
    with rxe.devices_closed(), stage.memory(SIZE, fill=0) as memory:
        idle = costs(daemon)
        expect.equal(idle, (0, 0, 0), 'before')
        with contextlib.ExitStack() as exits:
            alone = start(exits, daemon, memory, 1)
            region = register(alone)
            one = costs(daemon)
            expect.equal(one, (SIZE, SIZE, 1), 'of one')
            close(alone, region)
        expect.equal(costs(daemon), idle, 'between')

        with contextlib.ExitStack() as exits:
            workers = start(exits, daemon, memory, WORKERS)
            regions = register(workers)
            expect.equal(costs(daemon), one, 'of eight')
            move_at_once(stage, daemon, workers, regions)
            for at in range(WORKERS):
                expect.holds(memory.holds(at + 1, at * SHARE, (at + 1) * SHARE), f'value {at}')
            with_lanes = costs(daemon)
            expect.equal(with_lanes[1:], one[1:], 'after the transfers')
            for at in range(WORKERS):
                expect.equal(costs(daemon), with_lanes, f'without {at} of eight')
                close(workers[at:at + 1], regions[at:at + 1])
        pinned, said, arenas = costs(daemon)
        expect.equal((with_lanes[0] - pinned, said, arenas), (SIZE, 0, 0), 'without all')
        stage.valkey.stop()  # the lanes go with their connections, and what libfabric pins for them
        wait.until(lambda: costs(daemon) == idle, lambda: f'nothing is pinned: {costs(daemon)}', 60)


rxe.run(globals(), rxe.Rxe())
