"""The daemon's orderly end."""
import http.client
import os
import signal
import time

from lib import expect, tap, wait
from lib.memory import MIB
from lib.ports import free_port
from lib.session import ANSWER_WITHIN, Session
from lib.stage import Stage

AT_ONCE = 60            # seconds: not after drain_ms
LONG_DRAIN_MS = 150_000


class Stopping:
    """A daemon of its own with a session and a region."""

    def __init__(self, stage, server=None, **config):
        options = {name.replace('__', '.'): value for name, value in config.items()}
        self.daemon = stage.other_daemon(server, config=options)
        self.memory = stage.memory(MIB)
        self.session = stage.session(self.daemon)
        self.region = self.session.register(self.memory)

    def stop(self):
        self.daemon.process.signal(signal.SIGTERM)

    def check_end(self, status=0, seconds=60):
        expect.equal(self.daemon.process.wait(seconds), status, 'exit status')
        for path in (self.daemon.path, self.daemon.admin_path):
            expect.holds(not os.path.exists(path), f'{path} is still there')


def test_idle(stage):
    """SIGTERM while idle: exit status 0, sessions told, sockets gone"""
    stopping = Stopping(stage, daemon__drain_ms=LONG_DRAIN_MS)
    stopping.stop()
    stopping.session.wait_end()
    expect.equal(stopping.session.last_packet.get('method'), 'session.closed')
    stopping.check_end(seconds=AT_ONCE)
    expect.holds(stopping.daemon.notified('STOPPING=1'), f'the service manager was told {stopping.daemon.messages}')


def test_without_sessions(stage):
    """SIGTERM and SIGINT without a session: exit status 0 at once"""
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = stage.other_daemon(config={'daemon.drain_ms': LONG_DRAIN_MS})
        daemon.process.signal(number)
        expect.equal(daemon.process.wait(AT_ONCE), 0)


def test_transfer_finishes(stage):
    """A transfer in flight finishes; new ones are answered draining; then the session is closed"""
    stage.valkey.store('value', b'v' * 1000)
    stopping = Stopping(stage, daemon__drain_ms=LONG_DRAIN_MS)
    session = stopping.session
    with stage.valkey.faults(test_delay_before_reply_ms=3000):
        running = session.start_get(stopping.region, 0, 1000, 'value')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'the transfer runs')
        with stage.valkey.process.frozen():  # it does not end before it is seen what becomes of others
            stopping.stop()
            draining = session.wait_notification('daemon.draining')
            expect.holds(0 < draining['deadline_ms'] <= LONG_DRAIN_MS, draining)
            expect.equal(session.outcome(session.start_get(stopping.region, 5000, 1000, 'value')), 'draining')
            with expect.error('draining'):
                session.register(stopping.memory, size=4096)
        expect.equal(session.wait(running)['length'], 1000)
    expect.equal(stopping.memory[:1000], b'v' * 1000)
    session.wait_end()
    expect.equal(session.last_packet.get('method'), 'session.closed')
    stopping.check_end()


def test_new_connections_are_refused(stage):
    """Nobody gets in while the daemon drains"""
    stage.valkey.store('value', b'v' * 1000)
    stopping = Stopping(stage, daemon__drain_ms=LONG_DRAIN_MS)
    with stage.valkey.faults(test_delay_before_reply_ms=3000):
        running = stopping.session.start_get(stopping.region, 0, 1000, 'value')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'the transfer runs')
        stopping.stop()
        stopping.session.wait_notification('daemon.draining')
        try:
            late = Session(stopping.daemon.path, hello=False)
            number = late.request('hello', protocol=1)
            late.pump_until(lambda: late.ended or late.answers, ANSWER_WITHIN)
            expect.holds(late.ended or 'error' in late.answers[number], 'a new session was admitted')
        except (FileNotFoundError, ConnectionRefusedError, BrokenPipeError, ConnectionResetError):
            pass
        stopping.session.wait(running)
    stopping.check_end()


def never_answered(stage, drain_ms):
    server = stage.other_valkey()
    server.store('value', b'v' * 1000)
    stopping = Stopping(stage, server, daemon__drain_ms=drain_ms)
    session = stopping.session
    with server.faults(test_never_answer='yes'):
        numbers = [session.start_get(stopping.region, at * 1000, 1000, 'value') for at in range(3)]
        numbers.append(session.start_set(stopping.region, 5000, 1000, 'key'))
        wait.until(lambda: server.info('transfers') == 4, 'the transfers run')
        begun = time.monotonic()
        stopping.stop()
        session.wait_end()
        for number in numbers:
            expect.holds(session.outcome(number) in ('interrupted', 'cancelled', 'lost', 'draining'), session.answers)
        error = session.answers[numbers[3]]['error']['data']
        expect.equal(error.get('may_have_run'), True, 'may_have_run of the set')
        expect.equal(session.last_packet.get('method'), 'session.closed')
        stopping.check_end()
        return time.monotonic() - begun


def test_transfers_that_never_end(stage):
    """Transfers that never end: after drain_ms their lanes are destroyed, all are answered, exit status 0"""
    took = never_answered(stage, 700)
    expect.holds(0.6 < took < AT_ONCE, f'took {took:.2f} s')


def test_no_drain_time(stage):
    """drain_ms = 0: transfers are taken back at once"""
    took = never_answered(stage, 0)
    expect.holds(took < AT_ONCE, f'took {took:.2f} s')


def test_second_signal(stage):
    """A second SIGTERM while it drains does not end it before its transfers"""
    stage.valkey.store('value', b'v' * 1000)
    stopping = Stopping(stage)
    with stage.valkey.faults(test_delay_before_reply_ms=3000):
        running = stopping.session.start_get(stopping.region, 0, 1000, 'value')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'the transfer runs')
        stopping.stop()
        stopping.session.wait_notification('daemon.draining')
        stopping.stop()
        expect.holds(stopping.session.outcome(running) in ('ok', 'interrupted'), stopping.session.answers)
        stopping.session.wait_end()
        expect.equal(stopping.session.last_packet.get('method'), 'session.closed')
    stopping.check_end()


def test_while_the_server_is_down(stage):
    """The server is down: SIGTERM ends the daemon at once"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'daemon.drain_ms': LONG_DRAIN_MS})
    with stage.session(daemon):
        server.stop()
        daemon.process.signal(signal.SIGTERM)
        expect.equal(daemon.process.wait(AT_ONCE), 0)


def test_while_the_server_hangs(stage):
    """The server hangs: SIGTERM ends the daemon after drain_ms"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'daemon.drain_ms': 500})
    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 10, 'key')
        server.process.freeze()
        number = session.start_set(region, 0, 10, 'key')
        daemon.process.signal(signal.SIGTERM)
        expect.equal(session.outcome(number), 'interrupted')
        expect.equal(daemon.process.wait(), 0)
    stage.end(server)


def test_questions_at_the_end(stage):
    """A scraper, and a reload that reads when all connections have ended: answered, not taken over, status 0"""
    port = free_port()
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'admin.metrics_listen': f'127.0.0.1:{port}'})
    with open(daemon.config_path, encoding='utf-8') as file:
        good = file.read()
    os.unlink(daemon.config_path)
    os.mkfifo(daemon.config_path)  # the worker that opens it waits, and so does the end of the daemon
    daemon.process.signal(signal.SIGHUP)
    wait.until(lambda: any(message.startswith('RELOADING=1') for message in messages(daemon)), 'the reload has begun')
    daemon.process.signal(signal.SIGTERM)
    with server.connect() as resp:
        wait.until(lambda: len(resp.call('CLIENT', 'LIST').splitlines()) == 1, 'the daemon has no connection')
    for _ in range(2):
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=20)
        connection.request('GET', '/metrics')
        text = connection.getresponse().read().decode()
        expect.holds('glide_rdmad_usable 0' in text and 'node_up{' not in text, text)
    daemon.process.signal(signal.SIGHUP)
    wait.until(lambda: 'SIGHUP: not reloaded' in daemon.process.log(), 'the signal is answered')
    with open(daemon.config_path, 'w', encoding='utf-8') as file:
        file.write(good)
    expect.equal(daemon.process.wait(), 0)
    told = messages(daemon)
    stopping = next(i for i, message in enumerate(told) if message.startswith('STOPPING=1'))
    expect.equal([message for message in told[stopping + 1:] if 'READY=1' in message or 'RELOADING=1' in message], [])


def messages(daemon):
    daemon.notified('')
    return daemon.messages


tap.run(globals(), Stage())
