"""The transport of RESP over RDMA on its loop, without a daemon, against a real server."""
import os

from lib import expect, paths
from lib.process import Process

import rxe
from rdma_server import RdmaValkey


class Server(rxe.Rxe):
    server_class = RdmaValkey


def scenario(stage, name, port=None, server=None):
    """What rdma_transport.c printed."""
    process = Process('rdma_transport', [paths.built('GRD_RDMA_TRANSPORT'), name, rxe.SERVER,
                                         str(port or (server or stage.valkey).port)],
                      os.path.join(stage.new_folder(), 'log'),
                      GLIDE_RDMAD_VALKEY_RDMA_OBJECT=paths.built('GRD_VALKEY_RDMA_OBJECT'))
    status = process.wait(220)
    expect.equal(status, 0, process.log())
    return process.log()


def test_pings(stage):
    """One after another, and ten thousand at once"""
    expect.equal(scenario(stage, 'pings').splitlines()[-1], rxe.DAEMON)


def test_values(stage):
    """Values of many sizes there and back, over the ends of both windows"""
    scenario(stage, 'values')


def test_question(stage):
    """Thousands of messages of which nothing but the server's answer to a question proves that they were seen"""
    scenario(stage, 'question')


def test_asleep(stage):
    """A server that looks at nothing for seconds: no more messages are sent than it has receives, and all is answered"""
    scenario(stage, 'asleep')


def test_idle(stage):
    """Nothing happens for longer than several keepalives"""
    scenario(stage, 'idle')


def test_quit(stage):
    """The server closes: its last answer, if it came, is read before the end"""
    scenario(stage, 'quit')


def test_again(stage):
    """One connection after another"""
    scenario(stage, 'again')


def test_closed_port(stage):
    """Nobody listens there"""
    expect.holds('nobody listens there for RDMA' in (text := scenario(stage, 'refused', port=1)), text)


def test_protected_mode(stage):
    """The server's core does not let us in, and cannot say why"""
    server = stage.other_valkey(module=False, options={'protected-mode': 'yes'})
    for _ in range(5):
        text = scenario(stage, 'refused', server=server)
        expect.holds('protected mode, or maxclients' in text, text)


rxe.run(globals(), Server(module=False, valkey_options={'enable-debug-command': 'yes'}))
