"""status and the admin socket; nobody sees or uses what is another's."""
import os

from lib import expect, tap, wait
from lib.session import Session
from lib.stage import Stage
from lib.users import as_nobody

SIZE = 1 << 20


def admin(stage):
    return Session(stage.daemon.admin_path, hello=False)


def nothing_is_registered(operator):
    """What tests before have left goes when a worker gets its turn."""
    wait.until(lambda: operator.call('regions')['regions'] == [], 'nothing is registered')


def test_own_status(stage):
    """status tells a client its own regions and use, and the health of fabric and node"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        region = session.register(memory, label='my label')
        session.set(region, 0, 10, 'key')
        status = session.call('status')
        expect.equal(status['daemon']['draining'], False)
        expect.equal((status['fabric']['provider'], status['fabric']['usable']), ('tcp', True))
        expect.holds(status['fabric']['lanes'] >= 1, status['fabric'])
        expect.equal(status['nodes'][0]['state'], 'up')
        expect.equal(status['memory']['pinned_bytes'], SIZE)
        expect.equal(status['user']['pinned_bytes'], SIZE)
        expect.equal(status['user']['regions'], 1)
        expect.holds('my label' in str(status['session']), status['session'])


def test_users_are_apart(stage):
    """Another user's status does not show it, and its regions cannot be used"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        region = session.register(memory, label='secret label')
        with as_nobody(stage.session) as other:
            status = other.call('status')
            expect.holds('secret label' not in str(status), status)
            expect.equal((status['user']['regions'], status['user']['pinned_bytes']), (0, 0))
            for call in ((lambda: other.set(region, 0, 10, 'key')), (lambda: other.get(region, 0, 10, 'key')),
                         (lambda: other.call('region.close', region=region))):
                with expect.error('no_region'):
                    call()
        session.set(region, 0, 10, 'key')


def test_sessions_are_apart(stage):
    """A region belongs to its session: another session of the same user cannot use its number"""
    with stage.memory(SIZE) as memory, stage.session() as session, stage.session() as other:
        region = session.register(memory)
        with expect.error('no_region'):
            other.set(region, 0, 10, 'key')


def test_memory_of_two_users(stage):
    """Two users with one memory file have a registration each"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        session.register(memory)
        with as_nobody(stage.session) as other:
            result = other.call('region.register', fds=(memory.fd,), type='memfd', size=SIZE)
            expect.equal(result['shared'], False)
            expect.equal(len(stage.daemon.mappings(memory.name)), 2, 'mappings')
            other.set(result['region'], 0, 10, 'key')
        session.call('status')


def test_admin_status(stage):
    """The admin socket: status without hello, regions and transfers of everybody"""
    stage.valkey.store('value', b'v' * 100)
    with stage.memory(SIZE) as memory, stage.session() as session, admin(stage) as operator:
        expect.holds('daemon' in operator.call('status'), 'status')
        nothing_is_registered(operator)
        region = session.register(memory, label='seen by operators')
        regions = operator.call('regions')['regions']
        expect.equal([(entry['label'], entry['size']) for entry in regions], [('seen by operators', SIZE)])
        expect.equal(operator.call('transfers')['transfers'], [])
        with stage.valkey.faults(test_delay_before_reply_ms=3000):
            number = session.start_get(region, 0, 100, 'value')
            running = wait.until(lambda: operator.call('transfers')['transfers'], 'a transfer shows')
            expect.equal(len(running), 1)
            expect.equal(running[0]['length'], 100)
            session.wait(number)
        expect.equal(operator.call('transfers')['transfers'], [])


def test_admin_pages(stage):
    """Long lists come in pages; every entry comes once"""
    with stage.memory(SIZE) as memory, stage.session() as session, admin(stage) as operator:
        nothing_is_registered(operator)
        for number in range(300):
            session.register(memory, size=4096, label=f'label {number}')
        for limit in (7, 256):
            labels, after, pages = [], 0, 0
            while after is not None:
                page = operator.call('regions', limit=limit, after=after)
                expect.holds(len(page['regions']) <= limit, 'a page longer than asked for')
                labels += [entry['label'] for entry in page['regions']]
                after = page.get('next')
                pages += 1
            expect.equal(labels, [f'label {number}' for number in range(300)])
            expect.holds(pages > 1, 'one page held everything')
        with expect.error('invalid_params'):
            operator.call('regions', limit=257)


def test_admin_has_no_transfers(stage):
    """The admin socket neither registers nor moves anything"""
    with stage.memory(SIZE) as memory, admin(stage) as operator:
        with expect.error('method_not_found'):
            operator.call('region.register', fds=(memory.fd,), type='memfd', size=SIZE)
        with expect.error('method_not_found'):
            operator.call('keys.exists', keys=['x'])
        wait.until(lambda: stage.daemon.memfd_fds(memory.name) == 0, 'the descriptor is closed')


def test_modes_of_the_sockets(stage):
    """Modes of the sockets as configured; the admin socket is closed to others"""
    expect.equal(os.stat(stage.daemon.path).st_mode & 0o777, 0o666)
    expect.equal(os.stat(stage.daemon.admin_path).st_mode & 0o777, 0o600)
    try:
        as_nobody(lambda: admin(stage))
    except PermissionError:
        return
    raise AssertionError('another user came in')


def test_two_client_sockets(stage):
    """Several client sockets, each with its mode; users of two sockets are two users"""
    path = os.path.join(stage.new_folder(), 'second.sock')
    daemon = stage.other_daemon(config={'socket second.path': path, 'socket second.mode': '0600'})
    expect.equal(os.stat(path).st_mode & 0o777, 0o600)
    with stage.memory(SIZE) as memory, Session(daemon.path) as one, Session(path) as two:
        one.register(memory)
        expect.equal(two.call('region.register', fds=(memory.fd,), type='memfd', size=SIZE)['shared'], False)
        expect.equal(two.call('status')['user']['regions'], 1)


tap.run(globals(), Stage())
