"""Limits, and clients that want too much: they are told or disconnected, and nobody else notices."""
import contextlib
import json
import os
import re
import resource
import select
import socket
import time

from lib import expect, tap, wait
from lib.guard import Guard
from lib.metrics import look
from lib.session import ANSWER_WITHIN, Session
from lib.stage import Stage
from lib.users import as_nobody

CONFIG = {'valkey.connections': 1}
MALFORMED_IN_A_ROW = 64
HELLO_MS = 3000  # long enough for those that are to say it in time
WITHIN = 60      # seconds for what is done at once, or after HELLO_MS, on a busy host


def cpu_seconds(daemon):
    with open(f'/proc/{daemon.pid}/stat', encoding='ascii') as file:
        words = file.read().rsplit(')', 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def cpu_share(daemon, seconds=1.0):
    """Part of a processor that the daemon uses in that time."""
    begun, used = time.monotonic(), cpu_seconds(daemon)
    time.sleep(seconds)
    return (cpu_seconds(daemon) - used) / (time.monotonic() - begun)


def comes_to_rest(daemon, most):
    """Until it uses no more than that part of a processor; at first it may have something left to do."""
    wait.until(lambda: cpu_share(daemon) < most, 'the daemon comes to rest')


def closed(session):
    """Reads to the end; the last packet must be session.closed, whose members are returned."""
    session.wait_end()
    expect.equal((session.last_packet or {}).get('method'), 'session.closed', str(session.last_packet))
    return session.last_packet['params']


def test_sessions_of_a_user(stage):
    """More sessions of a user than allowed: told so and closed; another user is admitted; nothing is left"""
    daemon = stage.other_daemon(config={**CONFIG, 'limits.sessions_per_user': 4})
    with Guard(stage, daemon) as guard:
        for _ in range(50):
            others = [Session(daemon.path) for _ in range(3)]
            surplus = [Session(daemon.path, hello=False) for _ in range(5)]
            for session in surplus:
                params = closed(session)
                expect.equal(params['code'], -8, 'over_quota')
                expect.holds('sessions_per_user' in params['reason'], params)
            for session in others + surplus:
                session.close()
            wait.until(lambda: guard.held()['sessions'] == guard.before['sessions'], 'the sessions are gone')
        guard.unharmed()
        others = [Session(daemon.path) for _ in range(3)]
        stranger = as_nobody(lambda: Session(daemon.path))
        expect.equal(stranger.exists('x'), [False])
        stranger.close()


def test_sessions_of_the_daemon(stage):
    """More sessions than the daemon allows: over_limit, also for another user; later there is room again"""
    daemon = stage.other_daemon(config={**CONFIG, 'limits.sessions': 5})
    with Guard(stage, daemon) as guard:  # two of them
        others = [Session(daemon.path) for _ in range(3)]
        params = closed(Session(daemon.path, hello=False))
        expect.equal(params['code'], -6, 'over_limit')
        expect.holds('[limits] sessions' in params['reason'], params)
        guard.moves()
        for session in others:
            session.close()
        guard.unharmed()
        with Session(daemon.path) as session:
            expect.equal(session.exists('x'), [False])


def test_open_requests(stage):
    """More open requests than allowed: busy with the number, for the surplus only; then all goes on"""
    daemon = stage.other_daemon(config={**CONFIG, 'limits.requests': 10})
    with Guard(stage, daemon) as guard:
        with stage.valkey.faults(test_delay_before_reply_ms=5000):
            first = guard.session.start_set(guard.region, 0, 10, 'slow')
            numbers = [guard.session.start_set(guard.region, 0, 10, 'slow') for _ in range(12)]
            outcomes = [guard.session.outcome(number) for number in numbers if number - first >= 10]
            expect.equal(outcomes, ['busy'] * 3)
            refused = guard.session.answers[first + 12]['error']
            expect.holds('10' in refused['message'] and '[limits] requests' in refused['message'], refused)
            guard.session.call('transfer.cancel', id=numbers[0])
            for number in [first, *numbers[1:9]]:
                guard.session.call('transfer.cancel', id=number)
            for number in [first, *numbers[:9]]:
                expect.holds(guard.session.outcome(number) in ('ok', 'cancelled'), guard.session.answers[number])
        guard.unharmed()


def test_silence_before_hello(stage):
    """Who does not say hello in time is told and disconnected; who has said it may be silent"""
    daemon = stage.other_daemon(config={**CONFIG, 'limits.hello_ms': HELLO_MS})
    with Guard(stage, daemon) as guard:
        refused = look(daemon).get('refused_total', reason='over_limit')
        begun = time.monotonic()
        deaf = Session(daemon.path, hello=False)
        fill(deaf)
        silent = [Session(daemon.path, hello=False) for _ in range(20)]
        talking = Session(daemon.path, hello=False)
        numbers = []
        while not talking.ended and time.monotonic() - begun < WITHIN:
            try:
                numbers.append(talking.request('hello', protocol=99))
                numbers.append(talking.request('status'))
                talking.send_bytes(b'[]')
            except (BrokenPipeError, ConnectionResetError):
                break
            while talking.receive(0.01):
                pass
        for session in [*silent, talking]:
            params = closed(session)
            expect.equal(params['code'], -6, 'over_limit')
            expect.holds('hello_ms' in params['reason'], params)
        took = time.monotonic() - begun
        expect.holds(HELLO_MS / 1000 - 0.05 < took < WITHIN, f'disconnected after {took:.2f} s')
        wait.until(lambda: guard.held()['sessions'] == guard.before['sessions'],
                   'the session of the client that does not even read is gone')
        deaf.close()
        expect.equal(look(daemon).get('refused_total', reason='over_limit') - refused, 22, 'the metrics count them')
        expect.holds(len(numbers) >= 2, 'it did not talk')
        for session in [*silent, talking]:
            session.close()
        guard.unharmed('after those that were silent')
        expect.holds(not guard.operator.ended, 'the admin socket knows no such limit')
        late = Session(daemon.path, hello=False)
        late.receive(0.25)
        late.call('hello', protocol=1)
        expect.holds(not late.receive(HELLO_MS / 1000 + 0.1) and not late.ended,
                     'who said hello in time was disconnected')
        late.close()


def fill(session, method='status', **params):
    """Sends without reading, until the daemon takes nothing more, or ends the session. Returns the ids."""
    sent = []
    session.socket.setblocking(False)
    while select.select([], [session.socket], [], 0.3)[1]:
        try:
            while len(sent) < 100_000:
                number = session.next_id
                session.request(method, **params)
                sent.append(number)
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            break
    session.socket.setblocking(True)
    return sent


def test_client_that_never_reads(stage):
    """Answers that nobody fetches are bounded; then the daemon sleeps; each answer comes when the client reads again"""
    daemon = stage.other_daemon(config={**CONFIG, 'limits.requests': 100})
    with Guard(stage, daemon) as guard:
        deaf = [Session(daemon.path) for _ in range(3)]
        sent = [fill(deaf[0]), fill(deaf[1], 'keys.exists', keys=['x' * 100] * 20), fill(deaf[2], 'no.such')]
        expect.holds(all(0 < len(numbers) < 50_000 for numbers in sent), f'sent {[len(numbers) for numbers in sent]}')
        comes_to_rest(daemon, 0.2)
        guard.moves()
        for session, numbers in zip(deaf, sent):
            for n in numbers:
                expect.holds(session.outcome(n) in ('ok', 'busy', 'method_not_found'), session.answers[n])
            expect.equal(session.exists('x'), [False])
            session.close()
        guard.unharmed('after the deaf')


def test_deaf_client_that_dies(stage):
    """A client that leaves with unread answers behind it leaves nothing"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        for _ in range(3):
            session = Session(daemon.path)
            region = session.register(guard.memory)
            session.start_get(region, 500, 10, 'guard')
            fill(session, 'status')
            session.close()
        guard.unharmed()


def lowest_free(daemon):
    used = {int(number) for number in os.listdir(f'/proc/{daemon.pid}/fd')}
    return next(number for number in range(len(used) + 1) if number not in used)


def test_accept_without_descriptors(stage):
    """EMFILE on accept: a pause instead of a loop, one line in the log; sessions that are there go on; later it accepts"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (lowest_free(daemon), before[1]))
        try:
            waiting = [Session(daemon.path, hello=False) for _ in range(20)]
            numbers = [session.request('hello', protocol=1) for session in waiting]
            wait.until(lambda: 'cannot accept' in daemon.process.log(), 'the daemon complains')
            switches = sum(daemon.voluntary_switches().values())
            share = cpu_share(daemon, 1.5)
            expect.holds(share < 0.1, f'the daemon used {share:.0%} of a processor while it could not accept')
            switches = sum(daemon.voluntary_switches().values()) - switches
            expect.holds(switches < 300, f'{switches} wake-ups in 1.5 s')
            guard.moves()
            expect.equal(len(re.findall('cannot accept', daemon.process.log())), 1, 'lines in the log')
            expect.holds(not any(session.receive(0) for session in waiting), 'one was served')
        finally:
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
        begun = time.monotonic()
        for session, number in zip(waiting, numbers):
            expect.equal(session.wait(number)['protocol'], 1)
        expect.holds(time.monotonic() - begun < WITHIN, 'it took long to accept again')
        for session in waiting:
            session.close()
        guard.unharmed('after EMFILE')


def test_descriptors_run_out_in_the_middle(stage):
    """The daemon runs out of descriptors while sessions are made: each is served, told, or waits; then all is as before"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        for room in range(1, 6):
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (lowest_free(daemon) + room, before[1]))
            try:
                sessions = [Session(daemon.path, hello=False) for _ in range(6)]
                numbers = [session.request('hello', protocol=1) for session in sessions]
                for session in sessions:
                    session.receive(0.02)
                guard.moves()
            finally:
                resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
            for session, number in zip(sessions, numbers):
                session.pump_until(lambda s=session, n=number: n in s.answers or s.ended, ANSWER_WITHIN)
                expect.holds(session.ended or session.wait(number)['protocol'] == 1, session.last_packet)
                session.close()
            guard.unharmed(f'room for {room}')


def refusals(daemon):
    return look(daemon).total('refused_total')


def test_malformed_packets(stage):
    """Malformed packets: 63 in a row are answered, 64 end the session with the reason; a good one starts anew"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        for packet in (b'{', b'[]', b'{}', b' ' * 65537, b'{"jsonrpc":"2.0","id":0,"method":"status"}'):
            session = Session(daemon.path)
            for _ in range(5):
                for _ in range(MALFORMED_IN_A_ROW - 1):
                    session.send_bytes(packet)
                    expect.holds(session.receive(ANSWER_WITHIN), 'no answer')
                expect.equal(session.exists('x'), [False])
            before = refusals(daemon)
            for _ in range(MALFORMED_IN_A_ROW):
                session.send_bytes(packet)
            params = closed(session)
            expect.equal(refusals(daemon) - before, MALFORMED_IN_A_ROW + 1, 'each answer, and the end of the session')
            expect.equal(params['code'], -32600, 'invalid_request')
            expect.holds('malformed' in params['reason'], params)
            session.close()
            guard.unharmed(repr(packet[:20]))
        expect.holds(f'{MALFORMED_IN_A_ROW} malformed' in daemon.process.log(), 'the log does not say so')


def test_flood_from_many(stage):
    """Twenty clients that send nothing but nonsense: all are disconnected, and others are served meanwhile"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        floods = [Session(daemon.path, hello=False) for _ in range(20)]
        longest = 0.0
        alive = list(floods)
        end = time.monotonic() + WITHIN
        while alive and time.monotonic() < end:
            for session in list(alive):
                try:
                    session.socket.setblocking(False)
                    for _ in range(20):
                        session.send_bytes(b'{"jsonrpc":')
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    alive.remove(session)
            begun = time.monotonic()
            guard.operator.call('status')
            longest = max(longest, time.monotonic() - begun)
        expect.equal(len(alive), 0, 'clients that are still connected')
        expect.holds(longest < 20, f'another client waited for {longest:.2f} s')
        for session in floods:
            session.socket.setblocking(True)
            closed(session)
            session.close()
        guard.unharmed('after the flood')


def flood(path, sessions):
    """New sessions, half of them with rubbish, in place of the oldest ones."""
    for number in range(len(sessions)):
        if sessions[number] is not None:
            sessions[number].close()
        sessions[number] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            sessions[number].connect(path)
            for _ in range(number % 2 * 40):
                sessions[number].send(b'{"jsonrpc":"2.0","id":1,"method":"no.such"}')
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass


def test_flood_leaves_the_daemon_idle(stage):
    """A user that floods with refused requests and new connections waits; the daemon does not work for it all the time"""
    if 'GRD_PRELOAD' in os.environ:
        raise tap.Skip('a sanitizer takes the processor time that is measured')
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        sessions = [None] * 32
        as_nobody(lambda: flood(daemon.path, sessions))
        moves = 0
        begun, used = time.monotonic(), cpu_seconds(daemon)
        while time.monotonic() < begun + 2:
            for _ in range(5):
                as_nobody(lambda: flood(daemon.path, sessions))
            guard.moves()
            moves += 1
        share = (cpu_seconds(daemon) - used) / (time.monotonic() - begun)
        print(f'# {share:.0%} of a processor, {moves} transfers of another user beside')
        expect.holds(share < 0.5, f'the daemon used {share:.0%} of a processor')
        for session in sessions:
            session.close()
        guard.unharmed('after the flood')


def test_connections_that_end_at_once(stage):
    """A thousand connections that are closed at once, with and without a packet: nothing is left"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        hello = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'hello', 'params': {'protocol': 1}}).encode()
        for number in range(1000):
            # One that comes while too many have not been looked at yet is refused, as on a busy host.
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end, \
                    contextlib.suppress(BrokenPipeError, ConnectionResetError):
                end.connect(daemon.path)
                if number % 3 == 1:
                    end.send(hello)
                elif number % 3 == 2:
                    end.send(b'{')
        guard.unharmed()


def test_hello_flood(stage):
    """A client that says hello a thousand times does not collect descriptors"""
    daemon = stage.other_daemon(config=CONFIG)
    with Guard(stage, daemon) as guard:
        session = Session(daemon.path)
        numbers = []
        for _ in range(1000):
            numbers.append(session.request('hello', protocol=1))
            session.receive(0)
        for number in numbers:
            expect.equal(session.outcome(number), 'invalid_request')
        session.close()
        guard.unharmed()


tap.run(globals(), Stage())
