"""metrics: OpenMetrics text that a real parser reads, whose numbers change by exactly what was done."""
import http.client
import os
import re
import socket

from lib import expect, tap, wait
from lib.metrics import Metrics, look, text_of
from lib.ports import free_port
from lib.session import Session
from lib.stage import Stage
from lib.users import as_user

MIB = 1 << 20
TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8'


def changes(before, after, ignored=()):
    """What differs, without times."""
    found = {}
    for name, values in after.samples.items():
        if 'seconds' in name and not name.endswith('_count') or name.endswith('_bucket') or name in ignored:
            continue
        for labels, value in values.items():
            old = before.samples.get(name, {}).get(labels, 0)
            if value != old:
                found[(name.removeprefix('glide_rdmad_'), *(f'{k}={v}' for k, v in sorted(labels)))] = value - old
    return found


def test_parser(stage):
    """A parser of OpenMetrics reads the text; it has exactly the documented metrics, and counters at 0"""
    daemon = stage.other_daemon()
    text = text_of(daemon)
    metrics = Metrics(text)
    with open(os.path.join(os.path.dirname(__file__), '../../docs/operations.md'), encoding='utf-8') as file:
        documented = re.findall(r'^\| `(glide_rdmad_\w+)` \| (counter|gauge|histogram|info) \|', file.read(), flags=re.M)
    suffix = {'counter': '_total', 'info': '_info'}
    expect.equal(sorted((name + suffix.get(family.type, ''), family.type) for name, family in metrics.families.items()),
                 sorted(documented))
    for name in ('transfers_total', 'transfer_bytes_total', 'refused_total', 'transfer_reruns_total',
                 'transfer_seconds_count', 'transfers_queued', 'quarantine_bytes', 'log_lines_left_out_total'):
        expect.equal(metrics.total(name), 0, name)
    expect.equal(len(metrics.samples['glide_rdmad_transfers_total']), 2 * 18)
    expect.equal(metrics.get('daemon_info', version='0.1.0', libfabric='2.1', provider='tcp'), 1)
    expect.holds(text.endswith('# EOF\n'), text[-100:])


def test_transfers(stage):
    """A set, a get and a missing key change exactly their numbers"""
    daemon = stage.other_daemon()
    user = {'socket': 'main', 'uid': '0'}
    with stage.memory(4 * MIB, fill=7) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100000, 'metrics')  # the first one makes connections, lanes, registrations
        before = look(daemon)
        session.set(region, 0, 2 * MIB, 'metrics')
        session.get(region, 0, 4 * MIB, 'metrics')
        session.get(region, 0, 1000, 'missing')
        after = look(daemon)
        expect.equal(changes(before, after), {
            ('transfers_total', 'op=get', 'outcome=done'): 1,
            ('transfers_total', 'op=get', 'outcome=missing'): 1,
            ('transfers_total', 'op=set', 'outcome=done'): 1,
            ('transfer_bytes_total', 'op=get'): 2 * MIB,
            ('transfer_bytes_total', 'op=set'): 2 * MIB,
            ('transfer_seconds_count', 'size=16MiB', 'stage=queue'): 2,
            ('transfer_seconds_count', 'size=16MiB', 'stage=server'): 2,
            ('transfer_seconds_count', 'size=16MiB', 'stage=total'): 2,
            ('transfer_seconds_count', 'size=64KiB', 'stage=queue'): 1,
            ('transfer_seconds_count', 'size=64KiB', 'stage=server'): 1,
            ('transfer_seconds_count', 'size=64KiB', 'stage=total'): 1,
            ('requests_total', 'method=metrics'): 1,
            ('requests_total', 'method=transfer.get'): 2,
            ('requests_total', 'method=transfer.set'): 1,
            ('sessions_opened_total',): 1,
        })
        expect.equal(after.get('user_pinned_bytes', **user), 4 * MIB)
        expect.equal((after.get('pinned_bytes', budget='memlock'), after.get('regions'), after.get('arenas')),
                     (4 * MIB, 1, 1))
        expect.holds(after.total('registrations_total') >= 1 and after.total('lanes') >= 1, after.samples)
        times = after.samples['glide_rdmad_transfer_seconds_sum']
        total, server, queue = (times[frozenset({('stage', stage_name), ('size', '16MiB')})]
                                for stage_name in ('total', 'server', 'queue'))
        expect.holds(0 < server < total < 30 and 0 < queue < total and queue + server <= total, (queue, server, total))


def test_refusals(stage):
    """Refusals by the error's name, a connection that is not admitted among them"""
    daemon = stage.other_daemon(config={'policy uid 20001.sessions': 1, 'memory.pinned_limit': '1M'})
    with stage.memory(2 * MIB) as memory, stage.session(daemon) as session:
        before = look(daemon)
        with expect.error('over_budget'):
            session.register(memory)
        with expect.error('no_region'):
            session.set(7, 0, 10, 'key')
        with as_user(lambda: Session(daemon.path), 20001), \
                as_user(lambda: Session(daemon.path, hello=False), 20001) as second:
            second.wait_notification('session.closed')
        wait.until(lambda: look(daemon).get('sessions') == 2, 'the sessions of the other user have ended')
        found = changes(before, look(daemon))
        expect.equal({key: value for key, value in found.items() if key[0] == 'refused_total'}, {
            ('refused_total', 'reason=over_budget'): 1,
            ('refused_total', 'reason=no_region'): 1,
            ('refused_total', 'reason=over_quota'): 1,
        })


def test_taken_back(stage):
    """A cancelled transfer counts as such, with a lane that was destroyed"""
    daemon = stage.other_daemon()
    node = f'127.0.0.1:{stage.valkey.port}'
    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 10, 'key')
        before = look(daemon)
        with stage.valkey.faults(test_never_answer='yes'):
            number = session.start_get(region, 0, MIB, 'key')
            wait.until(lambda: look(daemon).get('transfers_in_flight') == 1, 'the transfer was sent')
            session.call('transfer.cancel', id=number)
            expect.equal(session.outcome(number), 'cancelled')
        after = look(daemon)
        expect.equal(after.get('transfers_total', op='get', outcome='cancelled, sent')
                     - before.get('transfers_total', op='get', outcome='cancelled, sent'), 1)
        expect.equal(after.get('node_revocations_total', node=node), 1)
        expect.equal(after.get('node_up', node=node), 1)


def test_users(stage):
    """17 users of memory: the one with least is among the others, with its numbers; nothing of it is named"""
    daemon = stage.other_daemon()
    sessions = []
    try:
        for i in range(17):
            session = as_user(lambda: Session(daemon.path), 20001 + i)
            sessions.append(session)
            with stage.memory((i + 1) * 65536) as memory:
                session.register(memory)
        metrics = look(daemon)
        expect.equal(metrics.get('user_pinned_bytes', socket='main', uid='20017'), 17 * 65536)
        expect.equal(metrics.get('user_pinned_bytes', socket='main', uid='20001'), None)
        # the admin socket's user, with one session and no memory, is the other one that is not named
        expect.equal((metrics.get('user_pinned_bytes', socket='', uid='other'),
                      metrics.get('user_sessions', socket='', uid='other')), (65536, 2))
        expect.equal(metrics.total('user_pinned_bytes'), metrics.get('pinned_bytes', budget='memlock'))
        expect.equal(len(metrics.samples['glide_rdmad_user_sessions']), 17)
    finally:
        for session in sessions:
            session.close()


def test_labels(stage):
    """Names of the configuration cannot break out of a label"""
    name = 'a"b\\c'
    daemon = stage.other_daemon(config={f'socket {name}.path': os.path.join(stage.new_folder(), 'odd')})
    with Session(daemon.sections[f'socket {name}']['path']):
        expect.equal(look(daemon).get('user_sessions', socket=name, uid='0'), 1)


def test_queue_times(stage):
    """users: how long each one's transfers waited, as buckets that can be subtracted"""
    daemon = stage.other_daemon(config={'valkey.connections': 1})
    with stage.memory(MIB) as memory, stage.session(daemon) as session, \
            as_user(lambda: Session(daemon.path), 20001), Session(daemon.admin_path, hello=False) as admin:
        def times():
            users = admin.call('users')['users']
            idle = [user['queue_us']['count'] for user in users if user['uid'] == 20001]
            expect.equal(idle, [0])
            return next(user for user in users if user['uid'] == 0 and user['socket'] == 'main')['queue_us']

        region = session.register(memory)
        session.set(region, 0, 10, 'key')
        before = times()
        stage.valkey.process.freeze()
        numbers = [session.start_get(region, n * 10, 10, 'key') for n in range(10)]
        wait.until(lambda: admin.call('status')['transfers']['queued'] == 9, 'nine wait for one connection')
        stage.valkey.process.thaw()
        for number in numbers:
            session.wait(number)
        after = times()
        expect.equal(after['count'] - before['count'], 10)
        expect.equal(sum(count for _, count in after['buckets']), after['count'])
        old = dict(map(tuple, before['buckets']))
        expect.equal(sum(count - old.get(bound, 0) for bound, count in after['buckets']), 10)
        expect.holds(0 < after['p50'] <= after['p99'] <= after['max'] < 30e6, after)
        expect.holds(after['max'] <= after['sum'], after)


def fetch(port, path='/metrics', method='GET'):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=20)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.getheader('Content-Type'), answer.read().decode()


def test_scraping(stage):
    """GET /metrics over loopback: the same numbers; other requests get their status"""
    port = free_port()
    daemon = stage.other_daemon(config={'admin.metrics_listen': f'127.0.0.1:{port}'})
    status, kind, text = fetch(port)
    expect.equal((status, kind), (200, TYPE))
    expect.equal(Metrics(text).families.keys(), look(daemon).families.keys())
    expect.equal(fetch(port, '/')[0], 404)
    expect.equal(fetch(port, method='POST')[0], 405)
    with socket.create_connection(('127.0.0.1', port), timeout=20) as client:
        client.sendall(b'x' * 5000)
        expect.holds(client.recv(1000).startswith(b'HTTP/1.1 431 '), 'too long a request')


def test_scrapers_are_bounded(stage):
    """A ninth connection is refused; those that say nothing are cut off, and the daemon serves on"""
    port = free_port()
    stage.other_daemon(config={'admin.metrics_listen': f'127.0.0.1:{port}'})
    silent = [socket.create_connection(('127.0.0.1', port), timeout=20) for _ in range(8)]
    wait.until(lambda: fetch_status(port) == 503, 'the ninth connection is refused')
    for client in silent:
        expect.equal(client.recv(100), b'', 'a silent connection ends')
        client.close()
    expect.equal(fetch(port)[0], 200)


def fetch_status(port):
    try:
        return fetch(port)[0]
    except (ConnectionError, http.client.HTTPException):
        return None  # refused while the request was on its way


def test_wrong_addresses(stage):
    """An address that others can reach, or that is taken, is refused at start with the reason"""
    for address, status, words in (('0.0.0.0:9111', 78, 'is no loopback address'),
                                   (f'127.0.0.1:{stage.valkey.port}', 1, 'address already in use')):
        daemon = stage.other_daemon(config={'admin.metrics_listen': address}, start=False)
        daemon.begin()
        wait.until(lambda: not daemon.alive(), 'the daemon ends')  # pylint: disable=cell-var-from-loop
        expect.equal(daemon.process.status(), status)
        expect.holds(words in daemon.process.log() and 'metrics_listen' in daemon.process.log(), daemon.process.log())
        stage.end(daemon)


tap.run(globals(), Stage())
