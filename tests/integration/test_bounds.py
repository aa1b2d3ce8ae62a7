"""Bounded queues: who reaches a bound is told so, and nobody else notices."""
import os

from lib import expect, tap, wait
from lib.stage import Stage
from lib.users import NOBODY

SIZE = 1 << 20
QUEUE = 20


def ready(stage, daemon):
    stage.valkey.store('value', b'v' * 100)
    memory = stage.memory(SIZE)
    session = stage.session(daemon)
    return session, session.register(memory)


def start_gets(session, region, count, first=0):
    return [session.start_get(region, (first + n) * 100, 100, 'value') for n in range(count)]


def surplus_is_refused(stage, session, region, count):
    """Outcomes and ids of so many gets, all of which the daemon has read before one of them ends."""
    with stage.valkey.process.frozen():
        numbers = start_gets(session, region, count)
        for number in numbers[QUEUE:]:
            session.outcome(number)
    return [session.outcome(number) for number in numbers], numbers


def test_queue_of_a_user(stage):
    """More transfers of a user than [limits] queue: busy for the surplus; all others are answered"""
    daemon = stage.other_daemon(config={'limits.queue': QUEUE, 'valkey.connections': 2})
    session, region = ready(stage, daemon)
    outcomes, numbers = surplus_is_refused(stage, session, region, 3 * QUEUE)
    expect.equal((outcomes.count('ok'), outcomes.count('busy')), (QUEUE, 2 * QUEUE), str(set(outcomes)))
    busy = next(session.answers[n]['error'] for n, outcome in zip(numbers, outcomes) if outcome == 'busy')
    expect.holds('queue' in busy['message'] and str(QUEUE) in busy['message'], busy)
    session.wait(session.start_get(region, 0, 100, 'value'))


def test_queue_is_the_users(stage):
    """The bound counts all sessions of a user, and not another user's"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    daemon = stage.other_daemon(config={'limits.queue': QUEUE, 'valkey.connections': 2})
    one, region = ready(stage, daemon)
    two, other_region = ready(stage, daemon)
    os.seteuid(NOBODY)
    try:
        stranger, strange_region = ready(stage, daemon)
    finally:
        os.seteuid(0)
    stage.valkey.process.freeze()  # so that none of them ends meanwhile
    numbers = start_gets(one, region, QUEUE)
    wait.until(lambda: two.call('status')['transfers']['open'] == QUEUE, 'all are accepted')
    expect.equal(two.outcome(two.start_get(other_region, 0, 100, 'value')), 'busy')
    admitted = stranger.start_get(strange_region, 0, 100, 'value')
    wait.until(lambda: two.call('status')['transfers']['open'] == QUEUE + 1, 'the stranger is admitted')
    stage.valkey.process.thaw()
    expect.equal(stranger.outcome(admitted), 'ok')
    for number in numbers:
        one.wait(number)


def test_requests_of_a_session(stage):
    """More open requests of a session than [limits] requests: busy for the surplus"""
    daemon = stage.other_daemon(config={'limits.requests': QUEUE, 'valkey.connections': 2})
    session, region = ready(stage, daemon)
    outcomes, numbers = surplus_is_refused(stage, session, region, 2 * QUEUE)
    expect.equal((outcomes.count('ok'), outcomes.count('busy')), (QUEUE, QUEUE), str(set(outcomes)))
    busy = next(session.answers[n]['error'] for n, outcome in zip(numbers, outcomes) if outcome == 'busy')
    expect.equal(busy['data']['limit'], QUEUE)
    expect.equal(session.exists('value'), [True])


def test_client_that_never_reads(stage):
    """A client that never reads is held back by its own socket; its memory in the daemon is bounded; others go on"""
    daemon = stage.other_daemon(config={'limits.requests': 100})
    other, region = ready(stage, daemon)
    session = stage.session(daemon)
    before = memory_of(daemon)
    session.socket.setblocking(False)
    sent = 0
    names = ['x' * 200 + str(n) for n in range(100)]
    blocked = 0
    while blocked < 20 and sent < 20_000:
        try:
            session.request('keys.exists', keys=names)
            sent += 1
            blocked = 0
        except BlockingIOError:
            blocked += 1
            expect.equal(other.exists('value'), [True])
            other.wait(other.start_get(region, 0, 100, 'value'))
        except (BrokenPipeError, ConnectionResetError):
            break  # cut off: as good
    expect.holds(sent < 20_000, 'nothing holds the client back')
    grown = memory_of(daemon) - before
    if 'GRD_PRELOAD' not in os.environ:  # a sanitizer keeps what is freed
        expect.holds(grown < 32 << 20, f'the daemon grew by {grown >> 20} MiB')
    session.close()
    expect.equal(other.exists('value'), [True])


def memory_of(daemon):
    with open(f'/proc/{daemon.pid}/status', encoding='ascii') as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith('RssAnon'))


def test_reading_again(stage):
    """A client that reads again gets every answer"""
    daemon = stage.other_daemon(config={'limits.requests': 50})
    session = stage.session(daemon)
    session.socket.setblocking(False)
    numbers = []
    while True:
        number = session.next_id
        try:
            session.request('keys.exists', keys=['x' * 100] * 50)
            numbers.append(number)
        except BlockingIOError:
            break
    session.socket.setblocking(True)
    for number in numbers:
        expect.holds(session.outcome(number) in ('ok', 'busy'), session.answers[number])


def test_death_with_a_full_queue(stage):
    """A client that leaves with a full queue behind it leaves nothing"""
    daemon = stage.other_daemon(config={'valkey.connections': 2})
    other, other_region = ready(stage, daemon)
    session, region = ready(stage, daemon)
    with stage.valkey.faults(test_delay_before_reply_ms=200):
        start_gets(session, region, 200)
        wait.until(lambda: stage.valkey.info('transfers') == 2, 'the connections are busy')
        session.close()
        wait.until(lambda: other.call('status')['memory']['regions'] == 1, 'its region is closed')
        expect.equal(other.call('status')['transfers']['open'], 0)
        other.wait(other.start_get(other_region, 0, 100, 'value'))


tap.run(globals(), Stage())
