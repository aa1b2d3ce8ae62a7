"""Permissions of users: methods, key prefixes, read_only, times to live and sizes, by socket, uid and group."""
import os
import subprocess

from lib import expect, paths, tap, wait
from lib.daemon import ini
from lib.session import Session
from lib.stage import Stage
from lib.users import as_user

SIZE = 8192
USER, OTHER, GROUP = 20001, 20002, 30001
RULE = f'[policy uid {USER}]'


def session(daemon, uid=USER, path=None, hello=True, **groups):
    return as_user(lambda: Session(path or daemon.path, hello=hello), uid, **groups)


def policy(stage, **keys):
    """A daemon with a section for the uid of these tests."""
    return stage.other_daemon(config={f'policy uid {USER}.{key}': value for key, value in keys.items()})


def denied(number, client, rule, section=RULE, name='denied', **data):
    """The request was refused by this rule of this section."""
    with expect.error(name) as error:
        client.wait(number)
    expect.holds(error.raised.message.startswith(f'{section} {rule} '), error.raised)
    expect.equal(error.raised.data, {'name': name, 'rule': rule, **data})


def entries(client, method, *keys, **more):
    """'ok', or the name of the error, of each key."""
    keys = [{'key_b64': key[1]} if isinstance(key, tuple) else key for key in keys]
    answer = client.call(method, keys=keys, **more)['keys']
    return [entry.get('error', {}).get('name', 'ok') for entry in answer]


def test_methods(stage):
    """methods: what is not on the list is denied, with its descriptor closed; what gives back is always allowed"""
    daemon = policy(stage, methods='transfer.get, keys.info')
    stage.valkey.store('value', b'v' * 100)
    with stage.memory(SIZE) as memory, session(daemon) as client, session(daemon, OTHER) as other:
        region = client.register(memory)
        expect.equal(client.get(region, 0, SIZE, 'value')['length'], 100)
        expect.equal(entries(client, 'keys.info', 'value'), ['ok'])
        denied(client.start_set(region, 0, 10, 'value'), client, 'methods')
        for method in ('keys.exists', 'keys.delete'):
            denied(client.request(method, keys=['value']), client, 'methods')
        denied(client.request('keys.expire', keys=['value'], ttl_ms=1), client, 'methods')
        denied(client.request('keys.exists', nonsense=1), client, 'methods')  # whatever it says
        client.call('status')
        client.call('transfer.cancel', id=1)
        client.call('region.close', region=region)
        other.set(other.register(memory), 0, 10, 'other')
    daemon = policy(stage, methods='keys.*')
    with stage.memory(SIZE, name='grd-not-wanted') as memory, session(daemon) as client:
        expect.equal(entries(client, 'keys.exists', 'value'), ['ok'])
        denied(client.request('region.register', fds=(memory.fd,), type='memfd', size=SIZE), client, 'methods')
        wait.until(lambda: daemon.holds_nothing_of('grd-not-wanted'), 'the descriptor is closed')


def test_no_method(stage):
    """An empty list of methods: hello and status, and nothing that reaches the server"""
    daemon = policy(stage, methods='')
    with session(daemon) as client:
        client.call('status')
        denied(client.request('keys.exists', keys=['a']), client, 'methods')


def test_prefixes(stage):
    """key_prefixes: every key of every method that takes keys; the others of a request go on"""
    daemon = policy(stage, key_prefixes=r'a:, \x00\xff, t\,\*')
    for key in ('a:1', 'b:1', b'\x00\xff2', b'\x00\xfe', 't,*'):
        stage.valkey.store(key, b'v' * 100)
    with stage.memory(SIZE) as memory, session(daemon) as client:
        region = client.register(memory)
        for key, allowed in (('a:1', True), ('b:1', False), ('a', False), ('A:1', False), (b'\x00\xff2', True),
                             (b'\x00\xfe', False), (b'\x00', False), ('t,*', True), ('t,x', False)):
            if allowed:
                expect.equal(client.get(region, 0, SIZE, key)['length'], 100)
                client.set(region, 0, 100, key)
            else:
                denied(client.start_get(region, 0, SIZE, key), client, 'key_prefixes')
                denied(client.start_set(region, 0, 100, key), client, 'key_prefixes')
        expect.equal(stage.valkey.call('EXISTS', 'a', 'A:1', 't,x', b'\x00'), 0)
        keys = ['a:1', 'b:1', 'a:2', ('key_b64', 'AP4='), ('key_b64', 'AP8y'), 'b:1']
        wanted = ['ok', 'denied', 'ok', 'denied', 'ok', 'denied']
        for method, more in (('keys.exists', {}), ('keys.info', {}), ('keys.expire', {'ttl_ms': 10**9}),
                             ('keys.delete', {})):
            expect.equal(entries(client, method, *keys, **more), wanted, method)
        expect.equal([stage.valkey.call('EXISTS', key) for key in ('a:1', 'b:1', b'\x00\xfe')], [0, 1, 1])
        expect.equal(stage.valkey.call('PTTL', 'b:1'), -1)
        entry = client.keys('keys.exists', 'b:1')[0]['error']
        expect.equal(entry['message'], f'{RULE} key_prefixes does not allow this key')


def test_no_window_is_taken(stage):
    """What is denied takes no window, no place in a queue and no connection"""
    daemon = policy(stage, key_prefixes='a:', queue=1)
    with stage.memory(SIZE) as memory, session(daemon) as client:
        region = client.register(memory)
        for number in [client.start_get(region, 0, SIZE, 'b') for _ in range(20)]:
            denied(number, client, 'key_prefixes')
        status = client.call('status')
        expect.equal((status['session']['regions'][0]['windows'], status['user']['transfers']), (0, 0))
        expect.equal((status['nodes'][0]['carriers'], sum(status['transfers']['ended'].values())), (0, 0))
        client.set(region, 0, SIZE, 'a:')


def test_no_prefix_and_every_prefix(stage):
    """An empty list allows no key; an asterisk allows all, also where another section has a list"""
    daemon = stage.other_daemon(config={f'policy uid {USER}.key_prefixes': '', f'policy uid {OTHER}.key_prefixes': '*',
                                        'policy.key_prefixes': 'p'})
    with session(daemon) as client, session(daemon, OTHER) as other, session(daemon, OTHER + 1) as third:
        expect.equal(entries(client, 'keys.exists', 'p', 'q'), ['denied', 'denied'])
        expect.equal(entries(other, 'keys.exists', 'p', 'q'), ['ok', 'ok'])
        expect.equal(entries(third, 'keys.exists', 'p', 'q'), ['ok', 'denied'])


def test_read_only(stage):
    """read_only: no set, no delete, no expire; all that reads goes on"""
    daemon = policy(stage, read_only='yes')
    stage.valkey.store('kept', b'v' * 100)
    with stage.memory(SIZE) as memory, session(daemon) as client:
        region = client.register(memory)
        denied(client.start_set(region, 0, 10, 'kept'), client, 'read_only')
        denied(client.request('keys.delete', keys=['kept']), client, 'read_only')
        denied(client.request('keys.expire', keys=['kept'], ttl_ms=1), client, 'read_only')
        expect.equal(client.get(region, 0, SIZE, 'kept')['length'], 100)
        expect.equal(client.exists('kept'), [True])
        expect.equal(client.keys('keys.info', 'kept')[0]['length'], 100)
    expect.equal(stage.valkey.call('PTTL', 'kept'), -1)


def lives(stage, key):
    """Seconds that the key was to live: hundreds, of which a busy host may take some away; None for ever."""
    left = stage.valkey.call('PTTL', key)
    return None if left == -1 else (left + 99_999) // 100_000 * 100


def test_times_to_live(stage):
    """default_ttl_ms for sets that name none; max_ttl_ms refuses a longer one, and is else the default"""
    daemon = stage.other_daemon(config={
        f'policy uid {USER}.default_ttl_ms': 500_000, f'policy uid {OTHER}.max_ttl_ms': 300_000,
        f'policy gid {GROUP}.max_ttl_ms': 200_000})
    with stage.memory(SIZE) as memory, session(daemon) as client, session(daemon, OTHER) as other, \
            session(daemon, groups=[GROUP]) as both, session(daemon, OTHER + 1) as free:
        regions = {each: each.register(memory) for each in (client, other, both, free)}

        def stored(each, **params):
            result = each.set(regions[each], 0, 10, 'key', **params)
            return lives(stage, 'key'), result.get('ttl_applied')

        expect.equal(stored(free), (None, None))
        expect.equal(stored(client), (500, True))
        expect.equal(stored(client, ttl_ms=900_000), (900, True))
        expect.equal(stored(other), (300, True))
        expect.equal(stored(other, ttl_ms=300_000), (300, True))
        expect.equal(stored(other, ttl_ms=100_000), (100, True))
        expect.equal(stored(both), (200, True))
        limits = {'limit': 300_000, 'asked': 300_001}
        section = f'[policy uid {OTHER}]'
        denied(other.start_set(regions[other], 0, 10, 'key', ttl_ms=300_001), other, 'max_ttl_ms', section, **limits)
        denied(other.request('keys.expire', keys=['key'], ttl_ms=300_001), other, 'max_ttl_ms', section, **limits)
        expect.equal(lives(stage, 'key'), 200)
        expect.equal(entries(other, 'keys.expire', 'key', ttl_ms=300_000), ['ok'])
        expect.equal(lives(stage, 'key'), 300)


def test_largest_value(stage):
    """max_value_bytes: too_large with both numbers; windows of gets may be larger"""
    daemon = policy(stage, max_value_bytes='1K')
    stage.valkey.store('large', b'v' * 5000)
    with stage.memory(SIZE) as memory, session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 1024, 'key')
        denied(client.start_set(region, 0, 1025, 'larger'), client, 'max_value_bytes', name='too_large', limit=1024,
               asked=1025)
        expect.equal(client.exists('larger'), [False])
        expect.equal(client.get(region, 0, SIZE, 'large')['length'], 5000)


def test_precedence(stage):
    """Of real uids and groups, for each key alone: the answer names the section that decided"""
    path = os.path.join(stage.new_folder(), 'second.sock')
    daemon = stage.other_daemon(config={
        'socket second.path': path, 'socket second.mode': '0666', 'policy.read_only': 'yes',
        f'policy gid {GROUP}.read_only': 'no', f'policy gid {GROUP}.key_prefixes': 'g',
        f'policy uid {USER}.key_prefixes': 'u', f'policy socket second uid {USER}.read_only': 'yes'})
    rows = (  # socket, uid, groups, who refuses a delete, the prefix
        (daemon.path, OTHER, [], '[policy] read_only', ''), (daemon.path, OTHER, [GROUP], None, 'g'),
        (daemon.path, USER, [GROUP], None, 'u'), (daemon.path, USER, [], '[policy] read_only', 'u'),
        (path, USER, [GROUP], f'[policy socket second uid {USER}] read_only', 'u'))
    for where, uid, groups, section, prefix in rows:
        with session(daemon, uid, where, groups=groups) as client:
            expect.equal(entries(client, 'keys.exists', 'g', 'u', 'x'),
                         ['ok' if key.startswith(prefix) else 'denied' for key in 'gux'], f'{where} {uid} {groups}')
            number = client.request('keys.delete', keys=['x'])
            if section is None:
                client.wait(number)
            else:
                denied(number, client, 'read_only', section.split(' read_only')[0])


def check_two_sockets(stage, passed):
    """Pods that share a uid: each socket has its own permissions, counts and keys."""
    folder = stage.new_folder()
    pods = {name: os.path.join(folder, f'{name}.sock') for name in ('red', 'blue')}
    config = {f'socket {name}.{key}': value for name, path in pods.items()
              for key, value in (('path', path), ('mode', '0666'))}
    daemon = stage.other_daemon(passed=(*pods, 'main', 'admin') if passed else (), config={
        **config, 'policy socket red.key_prefixes': 'red:', f'policy socket blue uid {USER}.key_prefixes': 'blue:',
        'policy socket blue.read_only': 'yes'})
    with stage.memory(SIZE) as memory, session(daemon, path=pods['red']) as red, \
            session(daemon, path=pods['blue']) as blue, session(daemon) as main:
        regions = {each: each.register(memory) for each in (red, blue, main)}
        red.set(regions[red], 0, 100, 'red:1')
        main.set(regions[main], 0, 100, 'blue:1')
        denied(red.start_get(regions[red], 0, 100, 'blue:1'), red, 'key_prefixes', '[policy socket red]')
        denied(blue.start_get(regions[blue], 0, 100, 'red:1'), blue, 'key_prefixes',
               f'[policy socket blue uid {USER}]')
        denied(blue.start_set(regions[blue], 0, 100, 'blue:1'), blue, 'read_only', '[policy socket blue]')
        expect.equal(blue.get(regions[blue], 0, 100, 'blue:1')['found'], True)
        expect.equal([entries(each, 'keys.exists', 'red:1', 'blue:1') for each in (red, blue, main)],
                     [['ok', 'denied'], ['denied', 'ok'], ['ok', 'ok']])
        expect.equal([each.call('status')['user']['socket'] for each in (red, blue, main)], ['red', 'blue', 'main'])
        with Session(daemon.admin_path, hello=False) as operator:
            users = {user['socket']: user['permissions'] for user in operator.call('users')['users']
                     if user['uid'] == USER}
        expect.equal(users, {'red': {'key_prefixes': ['red:']}, 'main': {},
                             'blue': {'key_prefixes': ['blue:'], 'read_only': True}})


def test_two_sockets(stage):
    """Two sockets of the daemon's own, one uid: different permissions and prefixes"""
    check_two_sockets(stage, False)


def test_two_passed_sockets(stage):
    """The same with sockets that a service manager passes by name"""
    check_two_sockets(stage, True)


def test_status(stage):
    """status shows a client its permissions, and glide-rdmactl too; no section, none"""
    daemon = policy(stage, methods='keys.info, keys.exists', key_prefixes=r'a, \xff', read_only='yes', default_ttl_ms=5,
                    max_ttl_ms=7, max_value_bytes='2M')
    with session(daemon) as client, session(daemon, OTHER) as other:
        expect.equal(client.call('status')['user']['permissions'], {
            'methods': ['hello', 'region.close', 'transfer.cancel', 'keys.exists', 'keys.info', 'status'],
            'key_prefixes': ['a', {'key_b64': '/w=='}], 'read_only': True, 'default_ttl_ms': 5, 'max_ttl_ms': 7,
            'max_value_bytes': 2 << 20})
        expect.equal(other.call('status')['user']['permissions'], {})
    command = [paths.built('GRD_CTL'), '--socket', daemon.path, 'status']
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, user=USER, group=USER,
                           extra_groups=[]).stdout
    line = next(line for line in shown.splitlines() if line.startswith('policy '))
    for part in ('methods hello region.close', 'key_prefixes a base64:/w==', 'read_only yes',
                 'max_value_bytes 2.0 MiB'):
        expect.holds(part in line, f'{part} in {line}')


def test_long_lists_fit_a_packet(stage):
    """As many prefixes as a section may have, in status and in the list of users"""
    users = range(USER, USER + 4)
    prefixes = '\n  '.join(f'{n:02}' + '\\x01' * 30 for n in range(64))
    daemon = stage.other_daemon(config={f'policy uid {uid}.key_prefixes': prefixes for uid in users})
    clients = [session(daemon, uid) for uid in users]
    expect.equal(len(clients[0].call('status')['user']['permissions']['key_prefixes']), 64)
    with Session(daemon.admin_path, hello=False) as operator:
        found = [len(user['permissions'].get('key_prefixes', [])) for user in operator.call('users')['users']]
    expect.equal(sorted(found), [0] + [64] * len(users))
    for client in clients:
        client.close()


def test_admit(stage):
    """admit = no: session.closed says denied and the section; what decides is the most specific one"""
    daemon = stage.other_daemon(config={'policy.admit': 'no', f'policy gid {GROUP}.admit': 'yes',
                                        f'policy uid {OTHER}.admit': 'no'})
    for uid, groups, section in ((USER, [], '[policy]'), (OTHER, [GROUP], f'[policy uid {OTHER}]')):
        with session(daemon, uid, hello=False, groups=groups) as client:
            closed = client.wait_notification('session.closed')
            client.wait_end()
        expect.equal(closed['code'], -9)
        expect.equal(closed['reason'], f'{section} admit = no for uid {uid}')
    with session(daemon, groups=[GROUP]) as client:
        client.call('status')
    with Session(daemon.admin_path, hello=False) as operator:
        operator.call('status')


def reload(daemon, **keys):
    """The section of these tests' uid has these keys from now on."""
    daemon.sections[f'policy uid {USER}'] = keys
    with open(daemon.config_path, 'w', encoding='utf-8') as file:
        file.write(ini(daemon.sections))
    with Session(daemon.admin_path, hello=False) as operator:
        return operator.call('reload')


def test_changed_by_reload(stage):
    """A reload changes the permissions of living sessions, which stay; what they have begun goes on"""
    daemon = policy(stage, key_prefixes='a:')
    stage.valkey.store('a:1', b'v' * 100)
    with stage.memory(SIZE) as memory, session(daemon) as client:
        region = client.register(memory)
        denied(client.start_get(region, 0, 100, 'b:1'), client, 'key_prefixes')
        with stage.valkey.faults(test_delay_before_reply_ms=2000):
            begun = client.start_get(region, 0, 100, 'a:1')
            wait.until(lambda: stage.valkey.info('transfers') == 1, 'it runs')
            answer = reload(daemon, key_prefixes='b:', read_only='yes')
            expect.equal(answer, {'reloaded': True, 'changed': ['[policy]'], 'needs_restart': []})
            denied(client.start_get(region, 200, 100, 'a:1'), client, 'key_prefixes')
            denied(client.start_set(region, 200, 100, 'b:1'), client, 'read_only')
        expect.equal(client.wait(begun)['length'], 100)
        expect.equal(entries(client, 'keys.exists', 'a:1', 'b:1'), ['denied', 'ok'])
        expect.equal(client.call('status')['user']['permissions'], {'key_prefixes': ['b:'], 'read_only': True})
        expect.equal(reload(daemon, read_only='yes', key_prefixes='b:,b:c')['changed'], [], 'the same in other words')
        reload(daemon, methods='keys.*', admit='no')
        denied(client.start_get(region, 200, 100, 'a:1'), client, 'methods')
        expect.equal(client.call('region.close', region=region)['memory_released'], True)
        with session(daemon, hello=False) as refused:
            expect.equal(refused.wait_notification('session.closed')['code'], -9)
        reload(daemon)
        client.set(client.register(memory), 0, 100, 'anything')


def test_socket_taken_out_of_the_files(stage):
    """A socket without a section any more is served until a restart, and its policy holds as long"""
    path = os.path.join(stage.new_folder(), 'red.sock')
    daemon = stage.other_daemon(config={'socket red.path': path, 'socket red.mode': '0666',
                                        'policy socket red.key_prefixes': 'red:'})
    with session(daemon, path=path) as before:
        for name in ('socket red', 'policy socket red'):
            del daemon.sections[name]
        for _ in range(2):
            answer = reload(daemon)
            expect.equal(answer['needs_restart'], ['[socket red]'])
            with session(daemon, path=path) as after:
                for client in (before, after):
                    expect.equal(entries(client, 'keys.exists', 'red:1', 'blue:1'), ['ok', 'denied'])


def test_reload_asks_for_groups(stage):
    """A session of more groups than are looked at, when a reload brings a section for a group: nothing is allowed"""
    daemon = stage.other_daemon()
    with stage.memory(SIZE) as memory, session(daemon, groups=list(range(40000, 41100))) as client:
        region = client.register(memory)
        daemon.sections[f'policy gid {GROUP}'] = {'read_only': 'yes'}
        reload(daemon)
        with expect.error('denied') as error:
            client.set(region, 0, 10, 'key')
        expect.holds('groups than are looked at, does not allow transfer.set' in error.raised.message, error.raised)
        client.call('region.close', region=region)
        del daemon.sections[f'policy gid {GROUP}']
        reload(daemon)
        client.set(client.register(memory), 0, 10, 'key')


tap.run(globals(), Stage())
