"""Clients, and the daemon itself, need no privileges."""
import os
import resource
import sys

from lib import expect, paths, tap
from lib.process import Process
from lib.stage import Stage
from lib.users import NOBODY

MEMLOCK = 64 * 1024
SIZE = 64 * 1024 * 1024
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib', 'unprivileged.py')


def need_root():
    if os.getuid() != 0:
        raise tap.Skip('needs root to become an unprivileged user')


def need_readable(*files):
    """The unprivileged user must be able to reach the files of the build."""
    for path in files:
        path = os.path.abspath(path)
        while path != '/':
            if not os.stat(path).st_mode & 0o001 and os.path.isdir(path):
                raise tap.Skip(f'{path} is closed to other users')
            path = os.path.dirname(path)


def run_client(stage, daemon, size=SIZE):
    need_root()
    need_readable(CLIENT, paths.client_library())
    client = Process('client', [sys.executable, '-B', CLIENT, daemon.path, str(size)],
                     os.path.join(stage.new_folder(), 'log'), uid=NOBODY, interpreter=True,
                     limits=[(resource.RLIMIT_MEMLOCK, MEMLOCK)])
    status = client.wait(60)
    expect.equal((status, client.log().strip()),
                 (0, f'uid {NOBODY} memlock {MEMLOCK} caps 0 verified True same True'))


def test_client(stage):
    """A client of an unprivileged user with a memlock limit of 64 KiB and no capabilities moves 64 MiB"""
    run_client(stage, stage.daemon)


def test_socket_closed_to_others(stage):
    """A socket that the user may not open: the library says no_access"""
    need_root()
    daemon = stage.other_daemon(config={'socket main.mode': '0600'})
    client = Process('client', [sys.executable, '-B', CLIENT, daemon.path, '1000'],
                     os.path.join(stage.new_folder(), 'log'), uid=NOBODY, interpreter=True)
    expect.holds(client.wait(30) != 0, 'the client came in')
    expect.holds('no_access' in client.log(), client.log())


def test_daemon(stage):
    """A daemon of an unprivileged user, with the same limits, serves that client"""
    need_root()
    need_readable(paths.daemon())
    run_client(stage, stage.other_daemon(uid=NOBODY), 1 << 20)


tap.run(globals(), Stage())
