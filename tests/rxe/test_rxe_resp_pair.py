"""The queue pair of a RESP connection over RDMA, against a real server: opened, used, and closed in each state."""
import os
import resource

from lib import expect, paths
from lib.process import Process
from lib.users import NOBODY

import rxe
from rdma_server import RdmaValkey


class Server(rxe.Rxe):
    server_class = RdmaValkey


def scenario(stage, name, server=None, **arguments):
    """What rdma_pair.c printed."""
    server = server or stage.valkey
    process = Process('rdma_pair', [paths.built('GRD_RDMA_PAIR'), paths.built('GRD_VALKEY_RDMA_OBJECT'), name,
                                    rxe.SERVER, str(server.port)],
                      os.path.join(stage.new_folder(), 'log'), **arguments)
    status = process.wait(200)
    expect.equal(status, 0, process.log())
    return process.log()


def test_ping(stage):
    """100 times PING, with sleep on the descriptors in between; then our own disconnect, told once"""
    before = rxe.packets()
    expect.equal(scenario(stage, 'ping').splitlines()[-1], rxe.DAEMON)
    rxe.expect_packets(before)


def test_slots(stage):
    """No more sends than asked for are under way; the next one is refused until one has ended"""
    scenario(stage, 'slots')


def test_receives_posted_again(stage):
    """More messages of the server than there are receives: each was posted again"""
    scenario(stage, 'many')


def test_quit(stage):
    """The server disconnects: one event, after everything that came before"""
    scenario(stage, 'quit')


def test_closed_port(stage):
    """Nobody listens: refused, with the status of the connection manager"""
    scenario(stage, 'closed-port')


def test_no_device(stage):
    """An address that no RDMA device leads to: a sentence that says what to look at"""
    text = scenario(stage, 'no-device')
    expect.holds('no RDMA device leads to 192.0.2.1' in text, text)


def test_wrong_key(stage):
    """A write with a key that the server did not give ends the connection with its status"""
    scenario(stage, 'wrong-key')


def test_no_receives(stage):
    """More than 1024 messages to a server that looks at none: work completion status 13, and no hang"""
    scenario(stage, 'no-receives')


def test_closes(stage):
    """Closed in each state, also with writes under way: nothing is left, and the server has noticed nothing"""
    scenario(stage, 'closes')
    expect.equal(stage.valkey.call('PING'), 'PONG')


def test_closes_connecting(stage):
    """Closed in the middle of connecting: nothing is left"""
    # A server of its own: 9.1.2 ends three seconds after it had to reject a connection.
    scenario(stage, 'closes-connecting', server=stage.other_valkey(module=False))


def test_low_memlock(stage):
    """Memory that cannot be locked: an error that names the limit, and nothing is left"""
    text = scenario(stage, 'low-memlock', uid=NOBODY, limits=[(resource.RLIMIT_MEMLOCK, 64 * 1024)])
    expect.holds('LimitMEMLOCK' in text, text)


rxe.run(globals(), Server(module=False, valkey_options={'enable-debug-command': 'yes'}))
