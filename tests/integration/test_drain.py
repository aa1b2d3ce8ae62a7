"""drain: nothing new is taken, what runs may end, and the operator is told what is left."""
import subprocess

from lib import expect, grd, paths, tap, wait
from lib.session import Session
from lib.stage import Stage

MIB = 1 << 20


def start_ctl(daemon, *words):
    return subprocess.Popen([paths.built('GRD_CTL'), 'drain', *words, '--admin-socket', daemon.admin_path], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ctl(daemon, *words):
    process = start_ctl(daemon, *words)
    out, error = process.communicate(timeout=100)
    return process.returncode, out, error


def test_idle_daemon(stage):
    """Without transfers it is done at once; clients are told, refused, and keep what they have"""
    daemon = stage.other_daemon()
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 10, 'drained')
        expect.equal(ctl(daemon), (0, 'drained: 0 transfers, 1 regions and 2 sessions left\n', ''))
        expect.equal(client.wait_notification('daemon.draining'), {'deadline_ms': 10000})
        for call in (lambda: client.get(region, 0, 10, 'drained'), lambda: client.register(memory)):
            with expect.error('draining') as error:
                call()
            expect.holds('drained by its operator' in error.raised.message, error.raised)
        expect.equal(client.exists('drained'), [True])
        with stage.session(daemon) as later:
            expect.equal((later.hello['usable'], later.hello['why']),
                         (False, 'the daemon was drained by its operator'))
        expect.equal(ctl(daemon, '--undo'), (0, 'new transfers are taken again\n', ''))
        expect.equal(client.wait_notification('daemon.resumed'), {})
        client.get(region, 0, 10, 'drained')
        expect.equal(ctl(daemon, '--undo')[0], 0)
        client.get(region, 0, 10, 'drained')
        expect.equal(len(client.notifications), 2, 'no second drain, and no second end of it, was announced')


def test_library(stage):
    """The library's information says that the daemon is drained, and that it is not any more"""
    daemon = stage.other_daemon()
    with grd.Client(daemon.path, timeout_ms=20000) as client, Session(daemon.admin_path, hello=False) as admin:
        for undo in (False, True, False):
            admin.call('drain', undo=undo)
            client.exists(b'key')  # reads what has come
            expect.equal(client.info().draining, not undo)


def test_transfers_in_flight(stage):
    """Those that run and wait may end: shown while they do, and the status is 0"""
    daemon = stage.other_daemon(config={'valkey.connections': 1, 'daemon.drain_ms': 60000})
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        stage.valkey.process.freeze()
        numbers = [client.start_get(region, n * 10, 10, 'key') for n in range(3)]
        with Session(daemon.admin_path, hello=False) as admin:
            wait.until(lambda: admin.call('status')['transfers']['open'] == 3, 'three are open')
        process = start_ctl(daemon)
        expect.equal(process.stderr.readline(), 'glide-rdmactl: 3 transfers left\n')
        stage.valkey.process.thaw()
        out, _ = process.communicate(timeout=100)
        expect.equal((process.returncode, out), (0, 'drained: 0 transfers, 1 regions and 2 sessions left\n'))
        for number in numbers:
            client.wait(number)


def frozen_get(stage, daemon, client, memory):
    """A get that is open, and goes on when the server is thawed."""
    region = client.register(memory)
    client.set(region, 0, 10, 'key')
    stage.valkey.process.freeze()
    number = client.start_get(region, 0, 10, 'key')
    with Session(daemon.admin_path, hello=False) as admin:
        wait.until(lambda: admin.call('status')['transfers']['open'] == 1, 'it is open')
    return number


def test_what_is_left(stage):
    """A transfer that does not end within drain_ms is reported, goes on, and is no success"""
    daemon = stage.other_daemon(config={'daemon.drain_ms': 600})
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        number = frozen_get(stage, daemon, client, memory)
        with Session(daemon.admin_path, hello=False) as admin:
            left = admin.call('drain')
            expect.equal((left['draining'], left['transfers'], left['drain_ms']), (True, 1, 600))
        status, out, _ = ctl(daemon)
        expect.equal((status, out), (75, 'drained: 1 transfers, 1 regions and 2 sessions left\n'))
        with Session(daemon.admin_path, hello=False) as admin:
            waiting = admin.request('drain', wait_ms=60000)
            expect.equal(admin.call('drain', undo=True)['draining'], False)
            expect.equal(admin.wait(waiting)['draining'], False)
            admin.request('drain', wait_ms=60000)  # and gone
        stage.valkey.process.thaw()
        client.wait(number)


def test_deadline(stage):
    """--deadline is how long drain waits, shorter or longer than drain_ms"""
    for drain_ms, deadline, thaw, expected in ((60000, 200, False, 75), (1, 60000, True, 0)):
        daemon = stage.other_daemon(config={'daemon.drain_ms': drain_ms})
        with stage.memory(MIB) as memory, stage.session(daemon) as client:
            number = frozen_get(stage, daemon, client, memory)
            process = start_ctl(daemon, '--deadline', str(deadline))
            expect.equal(process.stderr.readline(), 'glide-rdmactl: 1 transfers left\n')
            if thaw:
                stage.valkey.process.thaw()
            process.communicate(timeout=100)
            expect.equal(process.returncode, expected)
            if not thaw:
                stage.valkey.process.thaw()
            client.wait(number)


def test_stop_after_drain(stage):
    """A drained daemon ends as ever, also while somebody waits for the drain"""
    daemon = stage.other_daemon(config={'daemon.drain_ms': 300})
    with stage.memory(MIB) as memory, stage.session(daemon) as client, \
            Session(daemon.admin_path, hello=False) as admin:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        with stage.valkey.faults(test_never_answer='yes'):
            number = client.start_get(region, 0, 10, 'key')
            wait.until(lambda: admin.call('status')['transfers']['open'] == 1, 'it is open')
            waiting = admin.request('drain', wait_ms=60000)
            admin.call('status')
            daemon.process.signal(15)
            expect.equal(client.outcome(number), 'interrupted')
            expect.equal(admin.wait(waiting)['transfers'], 0)
            expect.equal(daemon.process.wait(), 0)


tap.run(globals(), Stage())
