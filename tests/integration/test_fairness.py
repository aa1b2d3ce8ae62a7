"""Users, and sessions of a user, take turns in bytes: a long queue of one does not hold up another's request, and one
connection is kept from a user that has its share while another is active."""
import os

from lib import expect, tap, wait
from lib.session import Session
from lib.stage import Stage
from lib.users import NOBODY, as_nobody

SIZE = 1 << 20
QUEUED = 100
DELAY_MS = 30


def ready(stage):
    stage.valkey.store('value', b'v' * 100)
    session = stage.session()
    return session, session.register(stage.memory(SIZE))


def check_turn(stage, first, second):
    """second's single request is answered while most of first's queue still waits."""
    (session, region), (other, other_region) = first, second
    with stage.valkey.faults(test_delay_before_reply_ms=DELAY_MS):
        numbers = [session.start_get(region, n * 100, 100, 'value') for n in range(QUEUED)]
        wait.until(lambda: session.answered(numbers[0]), 'the queue moves')
        other.wait(other.start_get(other_region, 0, 100, 'value'))
        session.answered(numbers[0])
        answered = len(session.answers)
        expect.holds(answered < QUEUED // 4, f'{answered} of {QUEUED} queued ones went first')
    for number in numbers:
        session.wait(number)


def test_sessions(stage):
    """Two sessions of one user"""
    check_turn(stage, ready(stage), ready(stage))


def test_users(stage):
    """Two users, one with many sessions"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    first = ready(stage)
    os.seteuid(NOBODY)
    try:
        second = ready(stage)
    finally:
        os.seteuid(0)
    check_turn(stage, first, second)


def test_gets_before_sets(stage):
    """Inside a session a get goes before queued sets"""
    session, region = ready(stage)
    with stage.valkey.faults(test_delay_before_reply_ms=DELAY_MS):
        sets = [session.start_set(region, n * 100, 100, 'other') for n in range(40)]
        wait.until(lambda: session.answered(sets[0]), 'the queue moves')
        session.wait(session.start_get(region, 10_000, 100, 'value'))
        expect.holds(len(session.answers) < 20, f'{len(session.answers)} went first')
        for number in sets:
            session.wait(number)


LARGE = 4 << 20
SMALL = 64 << 10


def test_bytes(stage):
    """A user of 4 MiB values gets as many bytes as one of 64 KiB values"""
    daemon = stage.other_daemon(config={'valkey.connections': 1})
    stage.valkey.store('large', b'v' * LARGE)
    stage.valkey.store('small', b'v' * SMALL)
    many, few = as_nobody(lambda: stage.session(daemon)), stage.session(daemon)
    large = few.register(stage.memory(12 * LARGE, fill=0))
    small = as_nobody(lambda: many.register(stage.memory(200 * SMALL, fill=0)))
    with stage.valkey.faults(test_delay_before_reply_ms=5):  # so that reading answers takes no time beside it
        second = [many.start_get(small, n * SMALL, SMALL, 'small') for n in range(200)]
        first = [few.start_get(large, n * LARGE, LARGE, 'large') for n in range(12)]
        for number in second:
            many.wait(number)
        moved = sum(few.answered(number) for number in first) * LARGE
    expect.holds(abs(moved - 200 * SMALL) <= 3 * LARGE, f'{moved} and {200 * SMALL} bytes')
    for number in first:
        few.wait(number)


def running(admin):
    """Transfers in flight of root and of the other user."""
    users = {user['uid']: user['in_flight'] for user in admin.call('users')['users'] if user['socket'] == 'main'}
    return users.get(0, 0), users.get(NOBODY, 0)


def test_one_is_kept(stage):
    """A user with a long queue leaves one of two connections to one that was active in the last second"""
    (heavy, region), admin = ready(stage), Session(stage.daemon.admin_path, hello=False)
    light = as_nobody(stage.session)
    window = as_nobody(lambda: light.register(stage.memory(SIZE)))
    light.get(window, 0, 100, 'value')
    with stage.valkey.faults(test_delay_before_reply_ms=DELAY_MS):
        numbers = [heavy.start_get(region, n * 100, 100, 'value') for n in range(QUEUED)]
        for _ in range(5):
            wait.until(lambda: running(admin)[0] == 1, 'only one of the first')
            number = light.start_get(window, 0, 100, 'value')
            wait.until(lambda: running(admin) == (1, 1), 'the other is sent at once')
            light.wait(number)
        wait.until(lambda: running(admin)[0] == 2, 'a user alone has both')
        expect.holds(not heavy.answered(numbers[-1]), 'that was too late to tell')
    for number in numbers:
        heavy.wait(number)


tap.run(globals(), Stage(daemon_config={'valkey.connections': 2}))
