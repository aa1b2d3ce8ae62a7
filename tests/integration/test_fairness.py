"""Users, and sessions of a user, take turns in bytes: a long queue of one does not hold up another's request, and one
connection is kept from a user that has its share while another is active."""
import os
import time

from lib import expect, tap, wait
from lib.session import Session
from lib.stage import Stage
from lib.users import NOBODY, as_nobody

SIZE = 1 << 20
QUEUED = 100
DELAY_MS = 300
ACTIVE_SECONDS = 1  # a user is active for so long after it has asked for a transfer


class Order:
    """The order in which the server gets transfers: it stands still while they are asked for in a with block."""

    def __init__(self, stage):
        self.server = stage.valkey
        self.keys = []

    def __enter__(self):
        self.monitor = self.server.connect()
        self.monitor.call('MONITOR')
        self.server.process.freeze()
        return self

    def __exit__(self, *_):
        self.server.process.thaw()

    def take(self, count):
        """Keys of so many transfers."""
        while len(self.keys) < count:
            words = self.monitor.receive().split('"')
            if words[1] in ('BLOB.RDMA_GET', 'BLOB.RDMA_SET'):
                self.keys.append(words[3])
        self.monitor.close()
        return self.keys


def ready(stage):
    for key in ('value', 'single'):
        stage.valkey.store(key, b'v' * 100)
    session = stage.session()
    return session, session.register(stage.memory(SIZE))


def connect_both(stage, session, region):
    def both():
        for number in [session.start_get(region, n * 100, 100, 'value') for n in range(2)]:
            session.wait(number)
        return session.call('status')['nodes'][0]['carriers'] == 2

    with stage.valkey.faults(test_delay_before_reply_ms=DELAY_MS):
        wait.until(both, 'both connections are there')


def register_on_both(stage, session, region):
    """A worker registers memory on a lane before the first transfer there is sent, while others go on."""
    time.sleep(ACTIVE_SECONDS + 0.1)  # nobody else is active any more: both connections may be used
    with Session(stage.daemon.admin_path, hello=False) as admin:
        with stage.valkey.process.frozen():  # what is sent stays in flight
            numbers = [session.start_get(region, n * 100, 100, 'value') for n in range(2)]
            wait.until(lambda: [entry['state'] for entry in admin.call('transfers')['transfers']] == ['sent'] * 2,
                       'one is sent on each connection')
    for number in numbers:
        session.wait(number)


def check_turn(stage, first, second):
    """second's single request is sent while most of first's queue still waits."""
    (session, region), (other, other_region) = first, second
    connect_both(stage, session, region)
    for each in first, second:
        register_on_both(stage, *each)
    with Order(stage) as order:
        numbers = [session.start_get(region, n * 100, 100, 'value') for n in range(QUEUED)]
        session.call('status')  # they have been read
        single = other.start_get(other_region, 0, 100, 'single')
        other.call('status')
    other.wait(single)
    for number in numbers:
        session.wait(number)
    before = order.take(QUEUED + 1).index('single')
    expect.holds(before < QUEUED // 4, f'{before} of {QUEUED} queued ones went first')


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
    with Order(stage) as order:
        numbers = [session.start_set(region, n * 100, 100, 'other') for n in range(40)]
        numbers.append(session.start_get(region, 10_000, 100, 'single'))
        session.call('status')  # they have been read
    for number in numbers:
        session.wait(number)
    before = order.take(41).index('single')
    expect.holds(before < 20, f'{before} went first')


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
    with Order(stage) as order:
        second = [many.start_get(small, n * SMALL, SMALL, 'small') for n in range(200)]
        first = [few.start_get(large, n * LARGE, LARGE, 'large') for n in range(12)]
        for session in (many, few):
            session.call('status')  # they have been read
    for session, numbers in ((many, second), (few, first)):
        for number in numbers:
            session.wait(number)
    keys = order.take(200 + 12)
    moved = keys[:len(keys) - keys[::-1].index('small')].count('large') * LARGE  # up to the last small one
    expect.holds(abs(moved - 200 * SMALL) <= 3 * LARGE, f'{moved} and {200 * SMALL} bytes')


def running(admin):
    """Transfers in flight of root and of the other user."""
    users = {user['uid']: user['in_flight'] for user in admin.call('users')['users'] if user['socket'] == 'main'}
    return users.get(0, 0), users.get(NOBODY, 0)


def kept(stage, admin, first, second):
    """False: it was too late to tell, as this process was held up. Returns when nothing is in flight any more."""
    (heavy, region), (light, window) = first, second
    begun = time.monotonic()
    light.get(window, 0, 100, 'value')
    with stage.valkey.process.frozen():  # what is sent stays in flight
        numbers = [heavy.start_get(region, n * 100, 100, 'value') for n in range(40)]
        heavy.call('status')  # they have been read
        in_time = time.monotonic() - begun < ACTIVE_SECONDS
        number = light.start_get(window, 0, 100, 'value')
        if in_time:
            wait.until(lambda: running(admin) == (1, 1), lambda: f'the other is sent at once: {running(admin)} are')
    for one in numbers:
        heavy.wait(one)
    light.wait(number)
    return in_time


def test_one_is_kept(stage):
    """A user with a long queue leaves one of two connections to one that was active in the last second"""
    first, admin = ready(stage), Session(stage.daemon.admin_path, hello=False)
    heavy, region = first
    light = as_nobody(stage.session)
    window = as_nobody(lambda: light.register(stage.memory(SIZE)))
    connect_both(stage, heavy, region)
    for _ in range(5):
        wait.until(lambda: kept(stage, admin, first, (light, window)), 'nothing holds this process up')
    time.sleep(ACTIVE_SECONDS + 0.1)  # the span that counts
    with stage.valkey.process.frozen():  # what is sent stays in flight
        numbers = [heavy.start_get(region, n * 100, 100, 'value') for n in range(3)]
        wait.until(lambda: running(admin) == (2, 0), lambda: f'a user alone has both: {running(admin)}')
    for number in numbers:
        heavy.wait(number)


tap.run(globals(), Stage(daemon_config={'valkey.connections': 2}))
