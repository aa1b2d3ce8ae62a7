"""The files of the daemon's sockets: their mode from the first moment on, and whose they are."""
import fcntl
import os
import socket
import stat
import threading

from lib import expect, tap, wait
from lib.stage import Stage

STARTED_TOGETHER = 4


def refused(daemon, *words):
    """It does not start, and says why."""
    daemon.begin()
    expect.holds(daemon.process.wait() not in (0, None), 'the daemon should not have started')
    for word in (daemon.path, *words):
        expect.holds(word in daemon.process.log(), daemon.process.log())


def leave_a_dead_socket(path):
    """As a crash does: nobody listens on it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(path)


def answers(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        return client.connect_ex(path) == 0


def sharing(stage, first, **arguments):
    """Another daemon for the same sockets."""
    other = stage.other_daemon(start=False, **arguments)
    other.path, other.admin_path = first.path, first.admin_path
    other.sections['socket main']['path'], other.sections['admin']['path'] = first.path, first.admin_path
    return other


def test_one_path_for_two_sockets(stage):
    """Two sockets of a configuration with one path: both are named, and none is made"""
    daemon = stage.other_daemon(start=False)
    daemon.sections['admin']['path'] = daemon.path
    refused(daemon, 'main and admin', 'same path')
    expect.holds(not os.path.exists(daemon.path), 'a socket was left')


def test_numbers_that_are_no_group(stage):
    """The number of a group that no file can have is refused, where it could stand for another or for none"""
    for number in (2**32 - 1, 2**32, '-1'):
        refused_group = stage.other_daemon(start=False, config={'socket main.group': number})
        refused_group.begin()
        expect.equal(refused_group.process.wait(), 1)
        expect.holds(f'no group "{number}"' in refused_group.process.log(), refused_group.process.log())


def test_passed_sockets_elsewhere(stage):
    """The log names the path that a passed socket has, not the one of the configuration; too many are refused"""
    daemon = stage.other_daemon(passed=('main', 'admin'), start=False)
    elsewhere, made = os.path.join(daemon.folder, 'elsewhere.sock'), []

    def make(_):
        made.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        made[-1].bind(elsewhere if len(made) == 1 else f'{elsewhere}{len(made)}')
        made[-1].listen()
        return made[-1]

    daemon._client_socket = make  # pylint: disable=protected-access
    daemon.start()
    expect.holds(f'listening on {elsewhere} [main], passed' in daemon.process.log(), daemon.process.log())
    expect.equal(daemon.stop(), 0)
    daemon.passed = ('main',) * 18
    for path in [elsewhere, *(f'{elsewhere}{number}' for number in range(2, 20))]:
        if os.path.exists(path):
            os.unlink(path)
    made.clear()
    daemon.begin()
    expect.equal(daemon.process.wait(), 1)
    expect.holds('more than 17 sockets' in daemon.process.log(), daemon.process.log())


def test_mode_from_the_first_moment(stage):
    """Whenever the file is there nobody may connect yet, or exactly those whom the configuration admits"""
    daemon = stage.other_daemon(start=False, config={'socket main.mode': '0640'})
    modes, ended = set(), threading.Event()

    def look():
        while not ended.is_set():
            try:
                modes.add(stat.S_IMODE(os.stat(daemon.path).st_mode))
            except FileNotFoundError:
                pass

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        daemon.start()
        wait.until(lambda: modes - {0}, 'the watcher sees the file')
    finally:
        ended.set()
        watcher.join()
    expect.equal(modes - {0}, {0o640})


def test_what_is_no_socket(stage):
    """A file, or a socket of another kind, at the path is left alone"""
    daemon = stage.other_daemon(start=False)
    with open(daemon.path, 'w', encoding='ascii') as file:
        file.write('precious')
    refused(daemon, 'no socket')
    with open(daemon.path, encoding='ascii') as file:
        expect.equal(file.read(), 'precious')
    os.unlink(daemon.path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(daemon.path)
        other.listen()
        refused(daemon, 'another type')
        expect.holds(os.path.exists(daemon.path), 'the socket is gone')


def test_left_by_a_crash(stage):
    """Sockets and locks that a killed daemon left are no obstacle; an orderly end leaves nothing"""
    daemon = stage.other_daemon()
    daemon.kill()
    expect.holds(os.path.exists(daemon.path), 'the socket is gone')
    for end in (daemon.stop, daemon.kill, daemon.stop):
        daemon.start()
        with stage.session(daemon) as session:
            expect.holds(session.call('status'), 'no status')
        end()
    expect.equal([name for name in os.listdir(daemon.folder) if name.startswith(('client', 'admin'))], [])


def test_another_daemon_listens(stage):
    """The second daemon for a path does not start, and the first goes on"""
    first = stage.other_daemon()
    refused(sharing(stage, first), 'another process listens')
    with stage.session(first) as session:
        expect.holds(session.call('status'), 'no status')


def test_another_process_is_about_to_listen(stage):
    """Who holds the lock has found the path's socket dead, and makes it anew: nobody else may take it away"""
    daemon = stage.other_daemon(start=False)
    leave_a_dead_socket(daemon.path)
    inode = os.stat(daemon.path).st_ino
    lock = os.open(daemon.path + '.lock', os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    refused(daemon, 'another process', '.lock')
    expect.equal(os.stat(daemon.path).st_ino, inode)
    os.close(lock)
    daemon.start()
    expect.holds(answers(daemon.path), 'it does not listen')


def test_started_together(stage):
    """Of daemons that start at once on a dead socket one listens, and is reached; the others end"""
    first = stage.other_daemon(start=False)
    leave_a_dead_socket(first.path)
    daemons = [first] + [sharing(stage, first) for _ in range(STARTED_TOGETHER - 1)]
    for daemon in daemons:
        daemon.begin()
    wait.until(lambda: sum(daemon.alive() for daemon in daemons) <= 1, 'all but one ended')
    [winner] = [daemon for daemon in daemons if daemon.alive()]
    wait.until(lambda: winner.notified('READY=1'), 'READY=1 of the one that is left')
    expect.holds(answers(first.path), 'it is not reached')
    for daemon in daemons:
        expect.holds(daemon is winner or 'another process' in daemon.process.log(), daemon.process.log())


tap.run(globals(), Stage())
