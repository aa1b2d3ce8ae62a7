"""A single server that is a primary no more, loads, or is replaced, with real servers: what it refuses is sent again,
within limits, and the daemon goes on without help."""
import os

from lib import expect, tap, wait
from lib.child import cover, in_own_mounts
from lib.resp import ServerError
from lib.stage import Stage

NOBODY = ('127.0.0.1', '1')  # no primary is there: a replica of it keeps what it has


def ready(stage, daemon):
    session = stage.session(daemon)
    memory = stage.memory(1000)
    region = session.register(memory)
    session.set(region, 0, 100, 'key')
    return memory, session, region


def refusals(daemon, word):
    return sum('again in' in line and word in line for line in daemon.process.log().splitlines())


def refuses(server, word):
    try:
        return server.call('EXISTS', 'k1') is None
    except ServerError as error:
        return word in str(error)


def full_of_keys(stage):
    """A primary whose replicas load for as long as their `key-load-delay` wants"""
    primary = stage.other_valkey()
    primary.call('EVAL', "for i = 1, 2000 do redis.call('SET', 'k' .. i, string.rep('v', 100)) end", '0')
    primary.store('other', b'o' * 50)
    primary.call('CONFIG', 'SET', 'repl-diskless-sync-delay', '0')
    return primary


def test_primary_becomes_a_replica(stage):
    """READONLY: sets and deletes wait for a primary until their deadline, gets go on; then each is done, once"""
    server = stage.other_valkey()
    # The grace of a deadline is long: a busy host may be late with the answer to the last attempt.
    daemon = stage.other_daemon(server, config={'valkey.connections': 2, 'fabric.revoke_grace_ms': 30_000})
    _, session, region = ready(stage, daemon)
    server.call('REPLICAOF', *NOBODY)
    with expect.error('deadline', 'server_error') as late:
        session.set(region, 0, 100, 'late', deadline_ms=3000)
    expect.ended_by_deadline(late.raised)
    expect.holds('READONLY' in late.raised.message, late.raised)
    before = refusals(daemon, 'READONLY')
    numbers = [session.start_set(region, 0, 100, 'waits'), session.request('keys.delete', keys=['key'])]
    wait.until(lambda: refusals(daemon, 'READONLY') >= before + 3, 'the set is refused again and again')
    expect.equal(session.get(region, 200, 100, 'key')['length'], 100)
    expect.equal([session.answered(number) for number in numbers], [False] * 2)
    server.call('REPLICAOF', 'NO', 'ONE')
    session.wait(numbers[0])
    expect.equal(session.wait(numbers[1])['keys'], [{'deleted': True}])
    expect.equal(server.call('EXISTS', 'waits', 'key', 'late'), 1)


def test_replica_without_its_primary(stage):
    """MASTERDOWN: a replica that may serve nothing of its own; gets and commands wait, and are done when it may"""
    server = stage.other_valkey(options={'replica-serve-stale-data': 'no'})
    daemon = stage.other_daemon(server)
    _, session, region = ready(stage, daemon)
    server.call('REPLICAOF', *NOBODY)
    numbers = [session.start_get(region, 200, 100, 'key'), session.request('keys.exists', keys=['key'])]
    wait.until(lambda: refusals(daemon, 'MASTERDOWN') >= 3, 'the get is refused again and again')
    server.call('REPLICAOF', 'NO', 'ONE')
    expect.equal(session.wait(numbers[0])['length'], 100)
    expect.equal(session.wait(numbers[1])['keys'], [{'exists': True}])


def test_server_loads(stage):
    """LOADING, of a replica that takes its primary's data in: gets and commands are sent again, and then are done"""
    primary = full_of_keys(stage)
    server = stage.other_valkey(options={'loading-process-events-interval-bytes': 1024, 'key-load-delay': 20_000,
                                         'repl-diskless-load': 'disabled'})
    daemon = stage.other_daemon(server)
    _, session, region = ready(stage, daemon)
    server.call('REPLICAOF', '127.0.0.1', str(primary.port))
    wait.until(lambda: refuses(server, 'LOADING'), 'it loads', pause=0.002)
    numbers = [session.start_get(region, 200, 100, 'other'), session.request('keys.exists', keys=['other'])]
    wait.until(lambda: refusals(daemon, 'LOADING') >= 1, 'the get is refused')
    server.call('CONFIG', 'SET', 'key-load-delay', '0')
    expect.equal(session.wait(numbers[0])['length'], 50)
    expect.equal(session.wait(numbers[1])['keys'], [{'exists': True}])


def test_server_loads_before_its_first_session(stage):
    """LOADING in answer to BLOB.RDMA_HELLO: who waits for a connection goes on waiting, and is served when it has
    loaded; a get that is not to be run again, and one whose time ends, are answered before"""
    primary = full_of_keys(stage)
    server = stage.other_valkey(options={'loading-process-events-interval-bytes': 1024, 'key-load-delay': 20_000,
                                         'repl-diskless-load': 'disabled'})
    server.call('REPLICAOF', '127.0.0.1', str(primary.port))
    wait.until(lambda: refuses(server, 'LOADING'), 'it loads', pause=0.002)
    daemon = stage.other_daemon(server)
    with stage.session(daemon) as session, stage.memory(1000) as memory:
        region = session.register(memory)
        numbers = [session.start_get(region, 200, 100, 'other'), session.request('keys.exists', keys=['other'])]
        with expect.error('server_down') as impatient:
            session.get(region, 400, 100, 'other', retry=False)
        expect.holds('LOADING' in impatient.raised.message, impatient.raised)
        with expect.error('deadline'):
            session.get(region, 400, 100, 'other', deadline_ms=100)
        wait.until(lambda: refusals(daemon, 'refused the RDMA session for now: LOADING') >= 2, 'sessions are refused')
        server.call('CONFIG', 'SET', 'key-load-delay', '0')
        expect.equal(session.wait(numbers[0])['length'], 50)
        expect.equal(session.wait(numbers[1])['keys'], [{'exists': True}])


def test_too_many_clients(stage):
    """A server that has as many clients as it takes: who waits for a connection, with a login or without, waits on, and
    is served when there is room"""
    path = os.path.join(stage.new_folder(), 'password')
    with open(path, 'w', encoding='ascii') as file:
        file.write('hush')
    for password in (None, 'hush'):
        server = stage.other_valkey(options={'requirepass': password} if password else {})
        server.password = password
        operator = server.connect()
        operator.call('CONFIG', 'SET', 'maxclients', 1)
        daemon = stage.other_daemon(server, config={'valkey.connect_timeout_ms': 60_000,
                                                    **({'valkey.password_file': path} if password else {})})
        with stage.session(daemon) as session, stage.memory(1000) as memory:
            region = session.register(memory)
            numbers = [session.start_set(region, 0, 100, 'key'), session.request('keys.delete', keys=['no'])]
            wait.until(lambda: refusals(daemon, 'max number of clients') >= 2, 'it is refused')
            expect.equal([session.answered(number) for number in numbers], [False] * 2)
            operator.call('CONFIG', 'SET', 'maxclients', 1000)
            session.wait(numbers[0])
            expect.equal(session.wait(numbers[1])['keys'], [{'deleted': False}])
            expect.equal(operator.call('EXISTS', 'key'), 1)
        operator.close()


def test_replica_without_its_primary_before_its_first_session(stage):
    """MASTERDOWN in answer to BLOB.RDMA_HELLO: gets and sets wait, and are done when there is a primary"""
    server = stage.other_valkey(options={'replica-serve-stale-data': 'no'})
    server.call('REPLICAOF', *NOBODY)
    daemon = stage.other_daemon(server)
    with stage.session(daemon) as session, stage.memory(1000) as memory:
        region = session.register(memory)
        numbers = [session.start_set(region, 0, 100, 'key'), session.request('keys.exists', keys=['key'])]
        wait.until(lambda: refusals(daemon, 'refused the RDMA session for now: MASTERDOWN') >= 3, 'it is refused')
        server.call('REPLICAOF', 'NO', 'ONE')
        session.wait(numbers[0])
        session.wait(numbers[1])
        expect.equal(server.call('EXISTS', 'key'), 1)


def test_another_server_in_its_place(stage):
    """The primary dies and another server takes its address over: transfers and commands go there"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    _, session, region = ready(stage, daemon)
    stage.end(server)
    other = stage.other_valkey(start=False)
    other.port = server.port
    other.start()
    session.wait_until_sets_work(region, 'after')
    wait.until(lambda: session.keys('keys.exists', 'after', 'key') == [{'exists': True}, {'exists': False}],
               'commands work', pause=0.05)
    expect.equal(len(other.value('after')), 100)


def lead(path, address):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(f'{address} primary.example\n')


def follows_the_name(stage, hosts):
    """In a mount namespace of its own, where `hosts` is /etc/hosts."""
    cover('/etc/hosts', hosts)
    with Stage() as own:
        first = own.other_valkey()
        second = own.other_valkey(start=False, options={'bind': '127.0.0.2'})
        second.port = first.port
        second.start()
        lead(hosts, '127.0.0.1')
        daemon = own.other_daemon(address=f'primary.example:{first.port}')
        _, session, region = ready(own, daemon)
        first.call('REPLICAOF', *NOBODY)
        numbers = [session.start_set(region, 0, 100, 'after'), session.request('keys.delete', keys=['gone'])]
        wait.until(lambda: refusals(daemon, 'READONLY') >= 2, 'the set is refused')
        lead(hosts, '127.0.0.2')
        session.wait(numbers[0])
        session.wait(numbers[1])
        found = [server.call('EXISTS', 'key', 'after') for server in (first, second)], len(second.value('after'))
        own.tidy()
        return found


def test_name_leads_elsewhere(stage):
    """A real lookup: the name of the primary leads to another server, and what the first refuses goes there"""
    hosts = os.path.join(stage.new_folder(), 'hosts')
    lead(hosts, '127.0.0.1')
    expect.equal(in_own_mounts(lambda: follows_the_name(stage, hosts)), '([1, 1], 100)')


tap.run(globals(), Stage())
