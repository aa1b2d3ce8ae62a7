"""A client that shares nothing with the daemon but the folder of the socket, as in another pod of the host."""
import os

from lib import expect, tap
from lib.child import in_child
from lib.memory import MIB, noise
from lib.session import Session
from lib.stage import Stage

DATA = noise(MIB, seed=9)


def check(stage, flags):
    """A child with these namespaces of its own moves a value."""
    if os.getuid() != 0 or not hasattr(os, 'unshare'):
        raise tap.Skip('needs root, and Python 3.12 for os.unshare')
    daemon = stage.daemon

    def child():
        os.unshare(flags)
        with stage.memory(2 * MIB) as memory, Session(daemon.path) as session:
            region = session.register(memory)
            memory[0:MIB] = DATA
            session.set(region, 0, MIB, 'from afar')
            session.get(region, MIB, MIB, 'from afar')
            return memory[MIB:2 * MIB] == DATA

    expect.equal(in_child(child), 'True')


def test_network(stage):
    """Another network, without an interface: the socket is a file, and values go by the daemon's network"""
    check(stage, os.CLONE_NEWNET)


def test_mounts(stage):
    """Other mounts, host name and System V objects"""
    check(stage, os.CLONE_NEWNS | os.CLONE_NEWUTS | os.CLONE_NEWIPC)


tap.run(globals(), Stage())
