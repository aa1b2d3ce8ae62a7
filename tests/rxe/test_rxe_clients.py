"""Clients need no right to a NIC or to lock memory, and what they do to their memory hurts nobody else."""
import os
import resource
import sys

from lib import expect, paths
from lib.memory import MIB
from lib.process import Process
from lib.users import NOBODY

import rxe

MEMLOCK = 64 * 1024
SIZE = 4 * MIB
CLIENT = os.path.join(os.path.dirname(os.path.abspath(paths.__file__)), 'unprivileged.py')


def test_unprivileged(stage):
    """A client with a memlock limit of 64 KiB and no way to the devices moves values"""
    path = stage.daemon.path
    with rxe.devices_closed():
        client = Process('client', [sys.executable, '-B', CLIENT, path, str(SIZE)],
                         os.path.join(stage.new_folder(), 'log'), uid=NOBODY, interpreter=True,
                         limits=[(resource.RLIMIT_MEMLOCK, MEMLOCK)])
        status = client.wait(120)
    expect.equal((status, client.log().strip()),
                 (0, f'uid {NOBODY} memlock {MEMLOCK} caps 0 verified True same True'))


def test_holes(stage):
    """Holes punched into registered memory: the daemon lives, others' values arrive, and nothing stays pinned"""
    stage.valkey.store('value', b'v' * SIZE)
    with stage.memory(SIZE) as memory, stage.memory(SIZE) as other, stage.session() as session:
        sound = session.register(other)
        session.get(sound, 0, SIZE, 'value')
        held = rxe.pinned(stage.daemon.pid)
        region = session.register(memory)
        expect.equal(memory.punch(0, SIZE // 2), 0)
        number = session.start_get(region, 0, SIZE, 'value')
        expect.equal(memory.punch(SIZE // 2, SIZE // 4), 0)
        session.outcome(number)
        expect.holds(memory.holds(0, 0, SIZE // 4), 'a hole got bytes that the NIC holds on to')
        session.set(region, 0, SIZE, 'of holes')
        other.fill(0)
        session.get(sound, 0, SIZE, 'value')
        expect.holds(other.holds(ord('v')), 'another region has other bytes')
        session.call('region.close', region=region)
        expect.equal(rxe.pinned(stage.daemon.pid), held)
        expect.holds(stage.daemon.alive(), 'the daemon ended')


rxe.run(globals(), rxe.Rxe())
