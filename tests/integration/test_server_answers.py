"""What a real server answers in operation: no way to this host, permissions and users that change, scripts, CLIENT
UNBLOCK, a connection that hangs; and IPv6 from end to end."""
import os

from lib import expect, tap, wait
from lib.late import ORIGINAL, REUSED, VALUE
from lib.memory import MIB
from lib.resp import ServerError
from lib.scripted_server import Answer, ScriptedServer
from lib.session import Session, keys_param
from lib.stage import Stage
from lib.users import as_user

SIZE = 100_000
PASSWORD = 'quite-secret'
HINT = ('security group', 'inbound and outbound', 'Availability Zone', 'subnet', 'cannot reach interface')


def ready(stage, daemon, size=SIZE):
    session = stage.session(daemon)
    memory = stage.memory(size)
    return memory, session, session.register(memory)


def failed(session, number, text, hint):
    with expect.error('server_error') as error:
        session.wait(number)
    expect.holds(text in error.raised.message, error.raised)
    expect.equal(error.raised.data['server_text'], text)
    for words in HINT:
        expect.equal(words in error.raised.message, hint, f'"{words}" in: {error.raised.message}')


def test_first_transfer_fails(stage):
    """ERR RDMA write or read failed before any success of a session: error and log say what to check; later not"""
    stage.valkey.store('value', b'v' * SIZE)
    daemon = stage.other_daemon(config={'valkey.connections': 1})
    _, session, region = ready(stage, daemon)

    def get():
        return session.start_get(region, 0, SIZE, 'value', retry=False)

    with stage.valkey.faults(test_fail_operation=1):
        failed(session, get(), 'ERR RDMA write failed', True)
    expect.holds('level=warning' in daemon.process.log() or 'level=warn' in daemon.process.log(), 'a warning')
    for words in HINT:
        expect.holds(words in daemon.process.log(), f'the log does not say: {words}')
    with stage.valkey.faults(test_error_while_running='yes'):  # each attempt has a session of its own
        failed(session, session.start_set(region, 0, SIZE, 'key'), 'ERR RDMA read failed', True)
    session.wait(get())
    with stage.valkey.faults(test_fail_operation=1):
        failed(session, get(), 'ERR RDMA write failed', False)


def protected(stage):
    server = stage.other_valkey(options={'requirepass': PASSWORD})
    server.password = PASSWORD
    server.call('ACL', 'SETUSER', 'mover', 'on', '>' + PASSWORD, '~*', '+@all')
    path = os.path.join(stage.new_folder(), 'password')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(PASSWORD)
    return server, stage.other_daemon(server, config={
        'valkey.user': 'mover', 'valkey.password_file': path, 'valkey.connections': 1})


def test_permission_changes(stage):
    """NOPERM from one moment to the next: an answer of its own, on the same connection; gets and keys go on"""
    server, daemon = protected(stage)
    _, session, region = ready(stage, daemon)
    session.set(region, 0, 100, 'key')
    server.call('ACL', 'SETUSER', 'mover', '-blob.rdma_set', '-del')
    with expect.error('server_error') as refused:
        session.set(region, 0, 100, 'key')
    expect.holds('NOPERM' in refused.raised.message, refused.raised)
    expect.equal((refused.raised.data['outcome'], refused.raised.data['may_have_run']), ('refused', False))
    expect.holds('NOPERM' in session.keys('keys.delete', 'key')[0]['error']['message'], 'a delete')
    expect.equal(session.get(region, 0, 100, 'key')['length'], 100)
    server.call('ACL', 'SETUSER', 'mover', '+@all')
    session.set(region, 0, 100, 'key')
    node = session.call('status')['nodes'][0]
    expect.equal((node['reconnects'], node['revocations']), (0, 0))


def test_user_is_deleted(stage):
    """The ACL user goes with its connections, under a transfer: the set may have run; later WRONGPASS; then it works"""
    server, daemon = protected(stage)
    _, session, region = ready(stage, daemon)
    session.set(region, 0, 100, 'key')
    with server.faults(test_delay_before_reply_ms=10_000):  # it ends with the connection
        number = session.start_set(region, 0, 100, 'key')
        wait.until(lambda: server.info('transfers') == 1, 'it runs')
        server.call('ACL', 'DELUSER', 'mover')
        with expect.error('lost') as lost:
            session.wait(number)
        expect.equal(lost.raised.data['may_have_run'], True)
    with expect.error('server_down', 'not_usable') as refused:
        session.set(region, 0, 100, 'key')
    expect.holds('WRONGPASS' in refused.raised.message, refused.raised)
    server.call('ACL', 'SETUSER', 'mover', 'on', '>' + PASSWORD, '~*', '+@all')
    session.wait_until_sets_work(region)


def test_password_is_demanded(stage):
    """A password that a live server asks for from now on: new connections say so, and work when it asks no more"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'valkey.connections': 1})
    _, session, region = ready(stage, daemon)
    session.set(region, 0, 100, 'key')
    server.call('CONFIG', 'SET', 'requirepass', PASSWORD)
    server.password = PASSWORD
    server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')

    def refused():
        try:
            session.set(region, 0, 100, 'key')
        except Exception as error:
            return 'NOAUTH' in str(error)
        return False

    wait.until(refused, 'NOAUTH is said', pause=0.05)
    server.call('CONFIG', 'SET', 'requirepass', '')
    server.password = None
    session.wait_until_sets_work(region)


def test_script_runs(stage):
    """BUSY of a real script: sets, gets and commands wait for its end, and then run once"""
    server = stage.other_valkey(options={'busy-reply-threshold': 20})
    # The grace of a deadline is long: a server that runs a script, on a busy host, is late with its refusals.
    daemon = stage.other_daemon(server, config={'valkey.connections': 2, 'fabric.revoke_grace_ms': 30_000})
    _, session, region = ready(stage, daemon)
    session.set(region, 0, 100, 'key')
    with server.connect() as script, server.connect() as other:
        script.send('EVAL', 'while true do end', '0')

        def busy():
            try:
                other.call('PING')
            except ServerError as error:
                return 'BUSY' in str(error)
            return False

        wait.until(busy, 'the script runs')
        numbers = [session.start_set(region, 0, 100, 'second'), session.start_get(region, 200, 100, 'key'),
                   session.request('keys.exists', keys=['key'])]
        with expect.error('deadline', 'server_error') as late:
            session.set(region, 400, 100, 'third', deadline_ms=200)
        expect.ended_by_deadline(late.raised)
        expect.equal([session.answered(number) for number in numbers], [False] * 3)
        other.call('SCRIPT', 'KILL')
        for number in numbers:
            session.wait(number)
    expect.equal(server.call('EXISTS', 'second', 'third'), 1)
    expect.equal(session.call('status')['nodes'][0]['revocations'], 0)


def test_unblocked(stage):
    """CLIENT UNBLOCK ... ERROR, as at a failover: bytes still move, so the lane goes first and nothing lands later"""
    server = stage.other_valkey(module_options={'chunk-size': MIB, 'block-timeout-callback': 'yes'})
    daemon = stage.other_daemon(server)
    size = 6 * MIB
    server.store('value', bytes([VALUE]) * size)
    memory, session, region = ready(stage, daemon, size)
    memory.fill(ORIGINAL)
    with server.faults(test_delay_between_chunks_ms=800):
        number = session.start_get(region, 0, size, 'value', retry=False)
        wait.until(lambda: memory[0] == VALUE, 'bytes move')
        lines = server.call('CLIENT', 'LIST').decode().splitlines()
        client = next(line for line in lines if 'cmd=blob.rdma_get' in line.lower())
        expect.equal(server.call('CLIENT', 'UNBLOCK', client.split()[0][3:], 'ERROR'), 1)
        with expect.error('server_error') as error:
            session.wait(number)
        expect.holds('UNBLOCKED' in error.raised.message, error.raised)
        expect.equal(error.raised.data['outcome'], 'failed and maybe running')
        expect.holds(memory.pages_not(VALUE, 0, size) > 0, 'all bytes were there already')
        memory.fill(REUSED)
        server.wait_idle()
        expect.holds(memory.holds(REUSED), 'late bytes')
    expect.equal(session.get(region, 0, size, 'value')['length'], size)


def test_one_connection_hangs(stage):
    """A command that is never answered: its transfer ends by its deadline, and others go on meanwhile"""
    stage.valkey.store('value', b'v' * 100)
    with ScriptedServer(stage.valkey) as server:
        daemon = stage.other_daemon(address=f'127.0.0.1:{server.port}', config={'valkey.connections': 2})
        _, session, region = ready(stage, daemon)
        other_memory, other, others = ready(stage, daemon)
        session.set(region, 0, 100, 'key')
        with server.script(BLOB_RDMA_SET=Answer(b'')):
            number = session.start_set(region, 0, 100, 'key', deadline_ms=10_000)
            for _ in range(20):
                expect.equal(other.get(others, 0, 100, 'value')['length'], 100)
                expect.equal(other.exists('value'), [True])
            expect.equal(session.answered(number), False)
            expect.equal(session.outcome(number), 'deadline')
        session.set(region, 0, 100, 'key')
        expect.holds(other_memory[0] == ord('v'), 'the value')


def test_server_stops_reading(stage):
    """A server that stops reading, its socket filled by one user: another's transfer ends in time; later all works"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'valkey.command_timeout_ms': 120_000})
    flooder = as_user(lambda: Session(daemon.path), 20001)
    with flooder, stage.session(daemon) as session, stage.memory(SIZE) as memory:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')
        server.process.freeze()
        keys = keys_param([b'\xff' * 16384, b'\xfe' * 16384])
        numbers = [flooder.request('keys.exists', keys=keys) for _ in range(250)]  # 8 MB
        wait.until(lambda: daemon.bytes_unsent() > MIB, 'the socket is full')
        with expect.error('deadline') as late:
            session.set(region, 0, 100, 'key', deadline_ms=3000)
        expect.equal((late.raised.data['outcome'], late.raised.data['may_have_run']), ('deadline, sent', True))
        expect.equal(session.call('status')['transfers']['open'], 0)
        asked = session.request('keys.exists', keys=['key'])
        expect.equal(session.answered(asked), False)
        server.process.thaw()
        outcomes = {flooder.outcome(number) for number in numbers}
        expect.holds('ok' in outcomes and outcomes <= {'ok', 'busy'}, outcomes)
        expect.equal(session.wait(asked)['keys'], [{'exists': True}])
        session.set(region, 0, 100, 'key')


def ipv6(stage, name, **module):
    server = stage.other_valkey(options={'bind': ('127.0.0.1', '::1')}, module_options=module)
    daemon = stage.other_daemon(address=f'{name}:{server.port}', config={'valkey.connections': 2})
    return server, daemon


def test_ipv6(stage):
    """IPv6 from end to end: [::1] as address, endpoints of both sides on ::1"""
    server, daemon = ipv6(stage, '[::1]', **{'fabric-interfaces': '::1'})
    memory, session, region = ready(stage, daemon)
    memory.fill(VALUE)
    session.set(region, 0, SIZE, 'key')
    expect.equal(server.value('key'), bytes([VALUE]) * SIZE)
    memory.fill(0)
    expect.equal(session.get(region, 0, SIZE, 'key')['length'], SIZE)
    expect.holds(memory.holds(VALUE, 0, SIZE), 'the value')


def test_ipv6_and_a_server_with_ipv4(stage):
    """The server's fabric has IPv4 alone, the connection is IPv6: the refusal says what to set, and that helps"""
    server, daemon = ipv6(stage, '[::1]', **{'fabric-interfaces': '127.0.0.1'})
    _, session, region = ready(stage, daemon)
    with expect.error('not_usable') as refused:
        session.set(region, 0, 100, 'key')
    for words in ('session create', 'IPv6', '[fabric] bind', 'largeobj.fabric-interfaces'):
        expect.holds(words in refused.raised.message, refused.raised)
    daemon = stage.other_daemon(address=f'[::1]:{server.port}', config={'fabric.bind': '127.0.0.1'})
    _, session, region = ready(stage, daemon)
    session.set(region, 0, 100, 'key')


tap.run(globals(), Stage())
