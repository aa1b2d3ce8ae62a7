"""Several NICs: lanes on each, memory registered where it is first needed, and one that is not there or goes."""
import contextlib
import subprocess

from lib import expect, paths, wait
from lib.memory import MIB
from lib.session import Session

import rxe

SIZE = MIB
LANES = 4
NICS = ('rxe0', 'rxe2')
HOLD_MS = 10000


def status(daemon):
    with Session(daemon.admin_path, hello=False) as operator:
        return operator.call('status')


def nics(daemon):
    return {nic['nic']: nic for nic in status(daemon)['fabric']['nics']}


def lanes(daemon):
    found = nics(daemon)
    return [found[name]['lanes'] for name in NICS]


def costs(daemon):
    """(bytes that the kernel has pinned, bytes that status says, those of each NIC, registrations of each NIC)"""
    memory = status(daemon)['memory']
    devices = {device['nic']: device for device in memory['devices']}
    return (rxe.pinned(daemon.pid), memory['pinned_bytes'], [devices[name]['used'] for name in NICS],
            [devices[name]['registrations'] for name in NICS])


def move(stage, session, region, memory):
    """A value on each connection at once."""
    memory.fill(0)
    with stage.valkey.faults(test_delay_before_reply_ms=HOLD_MS):
        numbers = [session.start_get(region, at * SIZE, SIZE, 'value') for at in range(LANES)]
        for number in numbers:
            expect.equal(session.wait(number, 180)['length'], SIZE)
    expect.holds(memory.holds(ord('v')), 'the values came with other bytes')


def test_both(stage):
    """Lanes are on both NICs; memory is registered on the second one when a lane there needs it, and counted"""
    stage.valkey.store('value', b'v' * SIZE)
    daemon = stage.other_daemon()
    total = LANES * SIZE
    with stage.memory(total) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        expect.equal(costs(daemon), (total, total, [total, 0], [1, 0]), 'before the first transfer')
        before = rxe.packets(NICS)
        move(stage, session, region, memory)
        expect.equal(lanes(daemon), [2, 2], 'lanes')
        rxe.expect_packets(before, NICS)
        with_region = costs(daemon)
        expect.equal(with_region[1:], (2 * total, [total, total], [1, 1]), 'after transfers over both')
        session.call('region.close', region=region)
        without = costs(daemon)
        expect.equal((with_region[0] - without[0], *without[1:]), (2 * total, 0, [0, 0], [0, 0]), 'closed')


def test_absent(stage):
    """A NIC that is listed and not there is reported and left out; the other one has all lanes"""
    stage.valkey.store('value', b'v' * SIZE)
    daemon = stage.other_daemon(config={'fabric.interfaces': 'rxe0, rxe7'})
    with stage.memory(LANES * SIZE) as memory, stage.session(daemon) as session:
        move(stage, session, session.register(memory), memory)
        found = nics(daemon)
        expect.equal([(found[name]['lanes'], found[name]['state']) for name in ('rxe0', 'rxe7')],
                     [(LANES, 'usable'), (0, 'left_out')])
        expect.holds('interface' in found['rxe7']['why'], found['rxe7']['why'])
        expect.holds('NIC rxe7 is left out' in daemon.process.log(), 'the log does not say so')


def links():
    return subprocess.run([paths.program('rdma'), 'link'], check=True, text=True, capture_output=True).stdout


@contextlib.contextmanager
def removal(stage, daemon):
    """A function that removes rxe2, which is there again afterwards. The kernel waits for all who have the device open,
    and that is every process with libfabric: the command ends after the daemon and the server."""
    command = []

    def remove():
        command.append(subprocess.Popen([paths.program('rdma'), 'link', 'delete', 'rxe2']))
        wait.until(lambda: 'link rxe2/' not in links(), 'rxe2 is gone', 60)

    try:
        yield remove
    finally:
        daemon.kill()
        stage.valkey.stop()
        for process in command:
            expect.equal(process.wait(120), 0, 'status of the command that removes the device')
            subprocess.run([paths.program('rdma'), 'link', 'add', 'rxe2', 'type', 'rxe', 'netdev', 'card2'], check=True)


def test_removed(stage):
    """A NIC is removed while it has lanes: the daemon lives and leaves it out, gets are run again over the other one"""
    stage.valkey.store('value', b'v' * SIZE)
    daemon = stage.other_daemon()
    with stage.memory(LANES * SIZE) as memory, stage.session(daemon) as session, \
            removal(stage, daemon) as remove:
        region = session.register(memory)
        move(stage, session, region, memory)
        expect.equal(lanes(daemon), [2, 2], 'lanes')
        remove()
        move(stage, session, region, memory)
        move(stage, session, region, memory)
        found = nics(daemon)
        expect.equal([(found[name]['lanes'], found[name]['state']) for name in NICS],
                     [(LANES, 'usable'), (0, 'left_out')])
        expect.holds('NIC rxe2 is left out' in daemon.process.log(), 'the log does not say so')
        session.call('region.close', region=region)
        memory_status = status(daemon)['memory']
        expect.equal((memory_status['pinned_bytes'], memory_status['quarantined_bytes']), (0, 0))
        expect.equal(daemon.stop(60), 0, 'exit status')
        stage.forget(daemon)


rxe.run(globals(), rxe.Rxe(module_options={'op-timeout-ms': 15000},
                           daemon_config={'fabric.interfaces': ', '.join(NICS), 'valkey.connections': LANES}))
