"""The daemon lives through an absent, restarted or hung Valkey server."""
import os

from lib import expect, tap, wait
from lib.ports import free_port
from lib.stage import Stage
from lib.valkey import Valkey


def test_start_without_a_server(stage):
    """The daemon starts without a server; transfers and keys.* answer server_down; when it starts they work"""
    server = Valkey(stage.new_folder(), start=False)
    daemon = stage.other_daemon(address=f'127.0.0.1:{server.port}')
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        for _ in range(2):
            with expect.error('server_down') as refused:
                session.set(region, 0, 100, 'key')
            expect.holds(str(server.port) in refused.raised.message, refused.raised)
            with expect.error('server_down'):
                session.exists('x')
        server.start()
        try:
            session.wait_until_sets_work(region)
            wait.until(lambda: session.keys('keys.exists', 'x') == [{'exists': False}], 'keys.exists works', pause=0.02)
        finally:
            server.stop()


def test_restart_between_transfers(stage):
    """A restart between transfers costs at most an error or two"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        for _ in range(3):
            session.wait_until_sets_work(region)
            server.restart()
        session.wait_until_sets_work(region)


def test_server_dies_under_a_transfer(stage):
    """The server dies while transfers run: lost (a set may have run), and the region is as good as before"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with stage.memory(1 << 20) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        server.store('value', b'v' * 1000)
        with server.faults(test_delay_before_reply_ms=30_000):
            numbers = [session.start_get(region, 0, 1000, 'value', retry=False),
                       session.start_set(region, 1000, 1000, 'key'),
                       session.start_get(region, 2000, 1000, 'value')]
            wait.until(lambda: server.info('transfers') == 3, 'all run')
            server.stop()
            expect.equal(session.outcome(numbers[0]), 'lost')
            with expect.error('lost') as lost:
                session.wait(numbers[1])
            expect.equal(lost.raised.data.get('may_have_run'), True, 'may_have_run')
            with expect.error('server_down') as down:  # the second attempt's answer
                session.wait(numbers[2])
            expect.equal(down.raised.data.get('attempts'), 2, 'attempts')
            server.start()
        session.wait_until_sets_work(region)


def test_connections_killed(stage):
    """The server closes idle connections: the next transfers make new ones"""
    with stage.memory(4096) as memory, stage.session() as session:
        region = session.register(memory)
        for _ in range(5):
            session.wait_until_sets_work(region)
            stage.valkey.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        expect.equal(stage.daemon.alive(), True)


def test_server_that_does_not_answer(stage):
    """A hung server: a transfer with a deadline is answered deadline, in time"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')
        server.process.freeze()
        number = session.start_get(region, 0, 100, 'key', deadline_ms=300)
        expect.equal(session.outcome(number), 'deadline')
        server.process.thaw()
        session.wait_until_sets_work(region)


def test_deadline_while_connecting(stage):
    """A deadline counts also while no connection can be made"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        server.process.freeze()
        number = session.start_get(region, 0, 100, 'key', deadline_ms=300)
        expect.holds(session.outcome(number) in ('deadline', 'server_down'), session.answers)
        server.process.thaw()
        session.wait_until_sets_work(region)


def test_limit_of_connecting(stage):
    """connect_timeout_ms is over with the connection: a command may take longer"""
    daemon = stage.other_daemon(config={'valkey.connect_timeout_ms': 4000})
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with stage.valkey.faults(test_delay_before_reply_ms=5000):
            session.set(region, 0, 100, 'key')  # on a connection that was made for it
        stage.valkey.call('CLIENT', 'PAUSE', 5000, 'ALL')
        expect.equal(session.exists('key'), [True])
        status = session.call('status')
        expect.equal((status['nodes'][0]['reconnects'], status['transfers']['run_again']), (0, 0))


def test_commands_of_a_server_that_hangs(stage):
    """keys.* of a server that is stopped, while its host acknowledges: `lost` after command_timeout_ms, and what was
    sent may have run; with a login nothing more is sent then. When the server goes on, so do they"""
    server = stage.other_valkey(options={'requirepass': 'hush'})
    server.password = 'hush'
    path = os.path.join(stage.new_folder(), 'password')
    with open(path, 'w', encoding='ascii') as file:
        file.write('hush')
    daemon = stage.other_daemon(server, config={'valkey.command_timeout_ms': 2000, 'valkey.connect_timeout_ms': 2000,
                                                'valkey.password_file': path})
    with stage.session(daemon) as session:
        for key in ('gone', 'kept'):
            server.call('SET', key, 'x')
        expect.equal(session.exists('gone', 'kept'), [True, True])
        server.process.freeze()
        numbers = [session.request('keys.exists', keys=['gone']), session.request('keys.delete', keys=['gone']),
                   session.request('keys.expire', keys=['kept'], ttl_ms=3_600_000),
                   session.request('keys.info', keys=['kept'])]
        for number in numbers:
            entry = session.wait(number)['keys'][0]['error']
            expect.holds(entry['name'] == 'lost' and 'command_timeout_ms = 2000 ms' in entry['message'], entry)
        entry = session.keys('keys.delete', 'kept')[0]['error']
        expect.equal(entry['name'], 'server_down')
        server.process.thaw()
        wait.until(lambda: server.call('EXISTS', 'gone') == 0, 'the DEL that was lost has run')
        expect.holds(server.call('PTTL', 'kept') > 0, 'the PEXPIRE that was lost has run')
        wait.until(lambda: session.keys('keys.exists', 'kept') == [{'exists': True}], 'keys.exists works')


def test_unresolvable_name(stage):
    """A host name that does not resolve: the daemon starts, and transfers name it"""
    daemon = stage.other_daemon(address='no-such-host.invalid:6379')
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        with expect.error('server_down') as refused:
            session.set(session.register(memory), 0, 100, 'key')
        expect.holds('no-such-host.invalid' in refused.raised.message, refused.raised)


def test_idle_while_down(stage):
    """While the server stays away the daemon tries again with growing pauses, not in a loop"""
    daemon = stage.other_daemon(address=f'127.0.0.1:{free_port()}')
    with stage.session(daemon) as session:
        with expect.error('server_down'):
            session.exists('x')
        before = sum(daemon.voluntary_switches().values())
        session.receive(2)  # nothing comes; two seconds pass
        grown = sum(daemon.voluntary_switches().values()) - before
        expect.holds(grown < 200, f'{grown} wake-ups in 2 s')


tap.run(globals(), Stage())
