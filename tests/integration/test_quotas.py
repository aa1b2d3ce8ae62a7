"""Quotas of users: each refused with exact numbers, free again afterwards, counted for each (socket, uid) apart."""
import contextlib
import json
import os
import resource
import subprocess

from lib import expect, paths, tap, wait
from lib.child import in_child
from lib.memory import PAGE
from lib.session import Session
from lib.stage import Stage
from lib.users import as_user

MIB = 1 << 20
USER, OTHER = 20001, 20002
GROUP, SECOND_GROUP = 30001, 30002
OVERFLOW = 65534  # of the kernel, see /proc/sys/kernel/overflowuid


def session(daemon, uid=USER, path=None, hello=True, **groups):
    return as_user(lambda: Session(path or daemon.path, hello=hello), uid, **groups)


def refused(data, quota, used, limit, asked):
    expect.equal(data, {'name': 'over_quota', 'quota': quota, 'used': used, 'limit': limit, 'asked': asked})


def test_pinned_bytes(stage):
    """pinned_bytes: the refusal has the numbers, sharing costs nothing, closing gives back"""
    daemon = stage.other_daemon(config={f'policy uid {USER}.pinned_bytes': '2M'})
    with stage.memory(MIB) as one, stage.memory(MIB + 1) as two, stage.memory(4 * MIB) as large, \
            session(daemon) as client, session(daemon) as same, session(daemon, OTHER) as other:
        region = client.register(one)
        with expect.error('over_quota') as error:
            same.register(two)
        refused(error.raised.data, 'pinned_bytes', MIB, 2 * MIB, MIB + 4096)
        expect.holds(f'[policy uid {USER}] pinned_bytes = {2 * MIB}' in error.raised.message, error.raised)
        shared = same.call('region.register', fds=(one.fd,), type='memfd', size=MIB)
        expect.equal(shared['shared'], True)
        expect.equal(same.call('status')['user']['pinned_bytes'], MIB)
        other.register(large)  # has no quota
        same.register(two, size=MIB)
        expect.equal(same.call('status')['user']['pinned_bytes'], 2 * MIB)
        client.call('region.close', region=region)
        expect.equal(same.call('status')['user']['pinned_bytes'], 2 * MIB, 'the arena is still held')
        same.call('region.close', region=shared['region'])
        expect.equal(same.call('status')['user']['pinned_bytes'], MIB)
        client.register(one)


def test_failed_registrations(stage):
    """A registration that fails after it was charged gives back all of it"""
    daemon = stage.other_daemon(config={'policy.pinned_bytes': '1M', 'memory.pinned_limit': '512K'})
    with stage.memory(MIB) as memory, session(daemon) as client:
        with expect.error('over_budget'):
            client.register(memory)
        expect.equal(client.call('status')['user']['pinned_bytes'], 0)
        client.register(memory, size=MIB // 2)


def test_concurrent_registrations(stage):
    """Registrations of one user at once, from two sessions: as many as fit succeed, and not one more"""
    daemon = stage.other_daemon(config={f'policy uid {USER}.pinned_bytes': '5M'})
    with session(daemon) as one, session(daemon) as two:
        for _ in range(10):
            started = []
            for n in range(24):
                memory = stage.memory(MIB)
                client = (one, two)[n % 2]
                started.append((client, client.request('region.register', fds=(memory.fd,), type='memfd', size=MIB)))
                memory.close()
            outcomes = [client.outcome(number) for client, number in started]
            expect.equal((outcomes.count('ok'), outcomes.count('over_quota')), (5, 19), str(outcomes))
            for client, number in started:
                answer = client.answers[number]
                if 'error' in answer:
                    refused(answer['error']['data'], 'pinned_bytes', 5 * MIB, 5 * MIB, MIB)
                else:
                    client.call('region.close', region=answer['result']['region'])
            expect.equal(one.call('status')['user']['pinned_bytes'], 0)


def test_regions(stage):
    """regions: counted over all sessions of the user"""
    daemon = stage.other_daemon(config={'policy.regions': 2})
    with stage.memory(MIB) as memory, session(daemon) as one, session(daemon) as two, session(daemon, OTHER) as other:
        region = one.register(memory)
        two.register(memory)
        with expect.error('over_quota') as error:
            one.register(memory)
        refused(error.raised.data, 'regions', 2, 2, 1)
        expect.holds('[policy] regions = 2' in error.raised.message, error.raised)
        other.register(memory)
        one.call('region.close', region=region)
        one.register(memory)
        two.close()
        wait.until(lambda: one.call('status')['user']['regions'] == 1, 'the regions of the closed session are gone')
        one.register(memory)


def test_descriptors(stage):
    """One user with all the sessions and regions it may have by default leaves descriptors to others"""
    config = {'limits.sessions_per_user': 40, 'limits.regions_per_user': 100}
    daemon = stage.other_daemon(config=config, limits=((resource.RLIMIT_NOFILE, 1000),))
    expect.holds('RLIMIT_NOFILE' not in daemon.process.log(), daemon.process.log())
    before = daemon.fd_count()
    with stage.memory(200 * PAGE) as memory, contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(session(daemon)) for _ in range(40)]
        for i in range(100):
            greedy[i % 40].register(memory, size=PAGE, offset=2 * i * PAGE)
        with expect.error('over_quota') as error:
            greedy[0].register(memory, size=PAGE, offset=PAGE)
        refused(error.raised.data, 'regions', 100, 100, 1)
        expect.holds('[limits] regions_per_user = 100' in error.raised.message, error.raised)
        expect.holds(180 <= daemon.fd_count() - before <= 190, f'{before} descriptors, then {daemon.fd_count()}')
        with session(daemon, OTHER) as other:
            other.register(memory)


def test_too_few_descriptors(stage):
    """Where one user could take more than half of the descriptors the log says so at the start"""
    daemon = stage.other_daemon(limits=((resource.RLIMIT_NOFILE, 2000),))
    expect.holds('RLIMIT_NOFILE is 2000, and one user may take 6400 descriptors' in daemon.process.log(),
                 daemon.process.log())


def test_sessions(stage):
    """sessions: session.closed says over_quota and which section set it; free again when one has ended"""
    daemon = stage.other_daemon(config={f'policy uid {USER}.sessions': 2, 'limits.sessions_per_user': 1})
    with session(daemon) as one, session(daemon) as two:
        with session(daemon, hello=False) as third:
            closed = third.wait_notification('session.closed')
            third.wait_end()
        expect.equal(closed['code'], -8)
        expect.holds(f'[policy uid {USER}] sessions = 2' in closed['reason'], closed)
        with session(daemon, OTHER), session(daemon, OTHER, hello=False) as more:
            expect.holds('[limits] sessions_per_user = 1' in more.wait_notification('session.closed')['reason'], '')
        two.close()
        wait.until(lambda: one.call('status')['user']['sessions'] == 1, 'the session has ended')
        with session(daemon) as again:
            expect.equal(again.call('status')['user']['sessions'], 2)


def start_gets(client, region, count):
    return [client.start_get(region, n * 4096, 4096, 'value') for n in range(count)]


def test_queue(stage):
    """queue: transfers beyond it are refused with numbers, all others answered"""
    stage.valkey.store('value', b'v' * 100)
    daemon = stage.other_daemon(config={f'policy gid {GROUP}.queue': 3, 'valkey.connections': 1})
    with stage.memory(MIB) as memory, session(daemon, groups=[GROUP]) as client, session(daemon, OTHER) as other:
        region, others = client.register(memory), other.register(memory)
        stage.valkey.process.freeze()  # so that none of them ends meanwhile
        numbers = start_gets(client, region, 4)
        more = start_gets(other, others, 4)
        with expect.error('over_quota') as error:
            client.wait(numbers[3])
        refused(error.raised.data, 'queue', 3, 3, 1)
        expect.holds(f'[policy gid {GROUP}] queue = 3' in error.raised.message, error.raised)
        stage.valkey.process.thaw()
        for number in numbers[:3]:
            client.wait(number)
        for number in more:
            other.wait(number)
        client.get(region, 0, 4096, 'value')


def test_in_flight(stage):
    """in_flight: what is beyond it waits in the user's queue and is refused nothing; another user goes on"""
    stage.valkey.store('value', b'v' * 100)
    daemon = stage.other_daemon(config={f'policy uid {USER}.in_flight': 2, 'valkey.connections': 6,
                                        'valkey.warm': 'yes'})
    with stage.memory(MIB) as memory, session(daemon) as client, session(daemon) as same, \
            session(daemon, OTHER) as other, Session(daemon.admin_path, hello=False) as operator:
        regions = [each.register(memory) for each in (client, same, other)]
        wait.until(lambda: operator.call('status')['nodes'][0]['carriers'] == 6, 'connections for all')
        with stage.valkey.faults(test_delay_before_reply_ms=300):
            stage.valkey.process.freeze()  # so that none of them ends meanwhile
            started = [(client, number) for number in start_gets(client, regions[0], 5)]
            started.append((same, same.start_get(regions[1], 50 * 4096, 4096, 'value')))
            wait.until(lambda: use(operator, USER)['in_flight'] == 2, 'two are sent')
            wait.until(lambda: use(operator, USER)['queued'] == 4, 'four wait')
            others = start_gets(other, regions[2], 4)
            wait.until(lambda: use(operator, OTHER)['in_flight'] == 4, 'the other user is not held up')
            most = use(operator, USER)['in_flight']
            stage.valkey.process.thaw()
            while not all(each.answered(number) for each, number in started):
                most = max(most, use(operator, USER)['in_flight'])
            expect.equal(most, 2, 'in flight at once')
        for each, number in started + [(other, number) for number in others]:
            expect.equal(each.wait(number)['length'], 100)
        expect.equal((use(operator, USER)['in_flight'], use(operator, USER)['queued']), (0, 0))


def use(operator, uid):
    """The entry of a user in the list of the admin socket, or zeroes."""
    found = [user for user in operator.call('users')['users'] if user['uid'] == uid]
    return found[0] if found else {'in_flight': 0, 'queued': 0}


def test_in_flight_cancelled(stage):
    """A place in flight that a cancelled transfer leaves goes to the next one"""
    stage.valkey.store('value', b'v' * 100)
    daemon = stage.other_daemon(config={'policy.in_flight': 1, 'valkey.connections': 2,
                                        'fabric.revoke_grace_ms': 0})
    with stage.memory(MIB) as memory, session(daemon) as client, session(daemon) as same:
        region, second = client.register(memory), same.register(memory)
        client.get(region, 0, 4096, 'value')  # the connection is there
        with stage.valkey.process.frozen():  # so that none of them ends meanwhile
            numbers = start_gets(client, region, 3)
            last = same.start_get(second, 50 * 4096, 4096, 'value')
            for number in (numbers[1], numbers[0]):
                expect.equal(client.call('transfer.cancel', id=number)['cancelled'], True)
        expect.equal([client.outcome(number) for number in numbers], ['cancelled', 'cancelled', 'ok'])
        expect.equal(same.outcome(last), 'ok')


def test_precedence(stage):
    """Of real uids and groups: socket+uid, uid, socket+gid, gid, socket, plain, for each key alone"""
    path = os.path.join(stage.new_folder(), 'second.sock')
    daemon = stage.other_daemon(config={
        'socket second.path': path, 'socket second.mode': '0666',
        'policy.regions': 1, 'policy.queue': 100, 'policy socket second.regions': 2, f'policy gid {GROUP}.regions': 3,
        f'policy gid {SECOND_GROUP}.regions': 4, f'policy socket second gid {GROUP}.regions': 5,
        f'policy uid {USER}.regions': 6, f'policy socket second uid {USER}.regions': 7})
    rows = (
        (daemon.path, OTHER, {}, 1), (path, OTHER, {}, 2), (daemon.path, OTHER, {'groups': [GROUP]}, 3),
        (daemon.path, OTHER, {'gid': GROUP}, 3), (daemon.path, OTHER, {'groups': [SECOND_GROUP]}, 4),
        (daemon.path, OTHER, {'groups': [SECOND_GROUP, GROUP]}, 3), (path, OTHER, {'groups': [GROUP]}, 5),
        (daemon.path, USER, {'groups': [GROUP]}, 6), (path, USER, {'groups': [GROUP]}, 7))
    for where, uid, groups, regions in rows:
        with session(daemon, uid, where, **groups) as client:
            quotas = client.hello['limits']['quotas']
            expect.equal((quotas['regions'], quotas['queue']), (regions, 100), f'{where} {uid} {groups}')
            expect.equal(client.call('status')['user']['quotas'], quotas)
            expect.equal(client.hello['limits']['regions'], regions)
            expect.equal(client.hello['limits']['in_flight'], 100)


def test_too_many_groups(stage):
    """More groups than are looked at: refused where a section asks for groups, and only there"""
    groups = list(range(40000, 41100))
    with session(stage.daemon, groups=groups) as client:
        client.call('status')
    daemon = stage.other_daemon(config={f'policy gid {GROUP}.regions': 1})
    with session(daemon, groups=groups, hello=False) as client:
        closed = client.wait_notification('session.closed')
    expect.equal(closed['code'], -9)
    expect.holds('more than 1024 groups' in closed['reason'], closed)
    with session(daemon, groups=groups[:1023] + [GROUP]) as client:
        expect.equal(client.hello['limits']['quotas']['regions'], 1)


def test_two_sockets(stage):
    """One uid on two sockets is two users, counted apart"""
    path = os.path.join(stage.new_folder(), 'second.sock')
    daemon = stage.other_daemon(config={'socket second.path': path, 'socket second.mode': '0666',
                                        'policy.pinned_bytes': '1M', 'policy socket second.pinned_bytes': '2M'})
    with stage.memory(2 * MIB) as memory, session(daemon) as one, session(daemon, path=path) as two:
        with expect.error('over_quota') as error:
            one.register(memory)
        refused(error.raised.data, 'pinned_bytes', 0, MIB, 2 * MIB)
        two.register(memory)
        one.register(memory, size=MIB)
        with Session(daemon.admin_path, hello=False) as operator:
            users = [user for user in operator.call('users')['users'] if user['uid'] == USER]
        expect.equal([(user['socket'], user['pinned_bytes'], user['quotas']['pinned_bytes']) for user in users],
                     [('main', MIB, MIB), ('second', 2 * MIB, 2 * MIB)])


def test_list_of_users(stage):
    """The admin socket and glide-rdmactl list users, their use and their quotas, in pages"""
    daemon = stage.other_daemon(config={f'policy uid {USER}.pinned_bytes': '3M', 'limits.queue': 77})
    clients = [session(daemon, USER + n) for n in range(5)]
    with stage.memory(MIB) as memory, Session(daemon.admin_path, hello=False) as operator:
        clients[0].register(memory)
        uids, after = [], 0
        while after is not None:
            page = operator.call('users', limit=2, after=after)
            expect.holds(len(page['users']) <= 2, page)
            uids += [user['uid'] for user in page['users']]
            after = page.get('next')
        expect.equal(uids, sorted([*range(USER, USER + 5), 0], key=uids.index), 'users')
        entry = use(operator, USER)
        expect.equal({name: entry[name] for name in ('socket', 'sessions', 'regions', 'pinned_bytes', 'in_flight',
                                                     'queued', 'transfers')},
                     {'socket': 'main', 'sessions': 1, 'regions': 1, 'pinned_bytes': MIB, 'in_flight': 0, 'queued': 0,
                      'transfers': 0})
        expect.equal(entry['quotas'], {'pinned_bytes': 3 * MIB, 'queue': 77, 'regions': 4096, 'sessions': 1024})
        command = [paths.built('GRD_CTL'), '--admin-socket', daemon.admin_path, 'users']
        shown = json.loads(subprocess.run([*command, '--json'], stdout=subprocess.PIPE, check=True).stdout)['users']
        expect.holds(entry in shown, shown)
        lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
        expect.equal(lines[0].split()[:3], ['ID', 'UID', 'SOCKET'])
        expect.holds([line for line in lines if f' {USER} ' in line and 'pinned_bytes 3.0 MiB' in line], lines)
    for client in clients:
        client.close()


def test_overflow_uid(stage):
    """The uid that stands for all that have none is refused, but where a policy section of its own admits it"""
    daemon = stage.other_daemon(config={'policy.admit': 'yes', f'policy gid {OVERFLOW}.admit': 'yes',
                                        f'policy uid {OVERFLOW}.regions': 1})
    with session(daemon, OVERFLOW, hello=False) as client:
        closed = client.wait_notification('session.closed')
        client.wait_end()
    expect.equal(closed['code'], -9)
    expect.holds(f'no [policy uid {OVERFLOW}] says admit = yes' in closed['reason'], closed)
    expect.holds([line for line in daemon.process.log().splitlines()
                  if 'was refused' in line and f'[policy uid {OVERFLOW}]' in line], 'the log says it')
    for section in (f'policy uid {OVERFLOW}', f'policy socket main uid {OVERFLOW}'):
        daemon = stage.other_daemon(config={f'{section}.admit': 'yes', 'policy.regions': 1})
        with session(daemon, OVERFLOW) as client:
            expect.equal(client.call('status')['user']['quotas']['regions'], 1)


def refused_with_its_number(number, folder):
    """In a mount namespace of its own, where the kernel tells another overflow uid than it has."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(['mount', '--make-private', '/proc'], check=True)
    for name, told in (('kernel', number), ('fs', number + 1)):
        path = os.path.join(folder, name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(f'{told}\n')
        subprocess.run(['mount', '--bind', path, f'/proc/sys/{name}/overflowuid'], check=True)
    with Stage() as own:
        daemon = own.other_daemon(address='127.0.0.1:1')
        with session(daemon, number, hello=False) as client:
            reason = client.wait_notification('session.closed')['reason']
        with session(daemon, number + 1) as client:
            client.call('status')
        own.tidy()
        return reason


def test_overflow_uid_of_the_kernel(stage):
    """It is the number of user namespaces, not that of file systems"""
    if os.getuid() != 0 or not hasattr(os, 'unshare'):
        raise tap.Skip('needs root, and Python 3.12 for os.unshare')
    folder = stage.new_folder()
    reason = in_child(lambda: refused_with_its_number(USER, folder))
    expect.holds(f'uid {USER} stands for every user without a uid' in reason, reason)


def test_log_of_refusals(stage):
    """Refused connections do not fill the log: one line a second, with the number of those left out"""
    daemon = stage.other_daemon(config={'policy.sessions': 0})
    for _ in range(200):
        with session(daemon, hello=False) as client:
            client.wait_notification('session.closed')

    def lines():
        return [line for line in daemon.process.log().splitlines() if 'was refused' in line]

    before = len(lines())
    expect.holds(before < 100, f'{before} lines for 200 connections')

    def told():
        with session(daemon, hello=False) as client:
            client.wait_notification('session.closed')
        return any('times more since the last such line' in line for line in lines())

    wait.until(told, 'the number of lines left out')


tap.run(globals(), Stage())
