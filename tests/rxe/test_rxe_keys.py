"""A remote key ends with its registration: a server that kept one can write nowhere once the region is closed."""
import shlex

from lib import expect
from lib.late import ORIGINAL, REUSED, VALUE
from lib.memory import MIB
from lib.resp import ServerError

import rxe

SIZE = MIB


def command_seen(monitor, name):
    """Its words, from what the server's MONITOR tells."""
    while True:
        words = shlex.split(monitor.receive().split('] ', 1)[1])
        if words[0] == name:
            return words


def replay(stage, hello, get):
    """The server does once more, on the same lane, what the daemon asked of it; what it answers."""
    with stage.valkey.connect() as resp:
        resp.call(*hello)
        try:
            return resp.call(*get)
        except ServerError as error:
            return str(error)


def test_closed(stage):
    """Address and key that named a region write into it while it is registered, and not when it is closed"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    daemon = stage.other_daemon(config={'valkey.connections': 1})
    with stage.memory(SIZE) as memory, stage.memory(SIZE) as other, stage.session(daemon) as session, \
            stage.valkey.connect() as monitor:
        monitor.call('MONITOR')
        region, sound = session.register(memory), session.register(other)
        session.get(region, 0, SIZE, 'value')
        hello, get = (command_seen(monitor, name) for name in ('BLOB.RDMA_HELLO', 'BLOB.RDMA_GET'))

        memory.fill(ORIGINAL)
        expect.holds(not isinstance(replay(stage, hello, get), str), 'the command does not work a second time')
        expect.holds(memory.holds(VALUE), 'its bytes did not arrive')

        session.call('region.close', region=region)
        memory.fill(REUSED)
        said = replay(stage, hello, get)
        expect.holds(memory.holds(REUSED), f'bytes arrived in memory of a closed region; the server says {said}')
        expect.holds(isinstance(said, str) and 'failed' in said, said)
        other.fill(ORIGINAL)
        session.get(sound, 0, SIZE, 'value')
        expect.holds(other.holds(VALUE), 'a region that was not closed has other bytes')


rxe.run(globals(), rxe.Rxe(module_options={'op-timeout-ms': 20000}))
