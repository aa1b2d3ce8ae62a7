"""Authentication to the Valkey server: password from a file, ACL users, refusals; secrets stay out of the log."""
import os

from lib import expect, tap, wait
from lib.dump import dump_holds
from lib.resp import Resp, ServerError
from lib.scripted_server import ScriptedServer
from lib.stage import Stage

PASSWORD = 'correct-horse-battery-staple'
OTHER = 'a-quite-different-secret'
WRONG = 'this-one-is-not-right'
SLICE = 65536


def password_file(stage, password, name='password'):
    path = os.path.join(stage.new_folder(), name)
    write(path, password)
    return path


def protected(stage):
    """A server whose default user has a password, with two ACL users."""
    server = stage.other_valkey(options={'requirepass': PASSWORD})
    server.password = PASSWORD
    server.call('ACL', 'SETUSER', 'mover', 'on', '>' + OTHER, '~*', '+@all')
    server.call('ACL', 'SETUSER', 'reader', 'on', '>' + OTHER, '~*', '+@all', '-blob.rdma_set')
    return server


def check(stage, server, config, works, moves=True):
    daemon = stage.other_daemon(server, config=config)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        if works:
            expect.equal(session.exists('x'), [False])
        else:
            with expect.error('server_error', 'server_down', 'not_usable', 'denied') as refused:
                session.exists('x')
        if moves:
            session.set(region, 0, 100, 'key')
            session.get(region, 0, 100, 'key')
        else:
            with expect.error('server_error', 'server_down', 'not_usable', 'denied') as refused:
                session.set(region, 0, 100, 'key')
            expect.holds(any(word in refused.raised.message for word in ('WRONGPASS', 'NOAUTH', 'NOPERM')),
                         refused.raised)
    expect.equal(daemon.stop(), 0)
    log = daemon.process.log()
    for secret in (PASSWORD, OTHER, WRONG):
        expect.holds(secret not in log, 'a password stands in the log')
    stage.end(daemon)
    return log


def test_password(stage):
    """The password of the default user, from a file"""
    check(stage, protected(stage), {'valkey.password_file': password_file(stage, PASSWORD)}, works=True)


def test_fifo(stage):
    """A password file that would have to be waited for is refused at once; nobody is kept waiting by it"""
    path = os.path.join(stage.new_folder(), 'password')
    os.mkfifo(path)
    daemon = stage.other_daemon(protected(stage), config={'valkey.password_file': path})
    with stage.session(daemon) as session:
        with expect.error('server_down', 'not_usable') as refused:
            session.exists('x')
        expect.holds(f'cannot read password_file {path}: it is no regular file' in refused.raised.message,
                     refused.raised)


def test_acl_user(stage):
    """An ACL user with its password"""
    check(stage, protected(stage), {'valkey.user': 'mover', 'valkey.password_file': password_file(stage, OTHER)},
          works=True)


def test_wrong_password(stage):
    """A wrong password: every request is answered with the server's reason"""
    log = check(stage, protected(stage), {'valkey.password_file': password_file(stage, WRONG)}, works=False,
                moves=False)
    expect.holds('WRONGPASS' in log, 'the log does not tell why')


def test_no_password(stage):
    """No password where one is needed: every request is answered with the server's reason"""
    check(stage, protected(stage), {}, works=False, moves=False)


def test_not_permitted(stage):
    """A user who may not set: the refusal is passed on, and get works"""
    server = protected(stage)
    daemon = stage.other_daemon(server, config={'valkey.user': 'reader',
                                                'valkey.password_file': password_file(stage, OTHER)})
    server.store('value', b'v')
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with expect.error('server_error', 'denied') as refused:
            session.set(region, 0, 100, 'key')
        expect.holds('NOPERM' in refused.raised.message or 'permission' in refused.raised.message, refused.raised)
        expect.equal(session.get(region, 0, 100, 'value')['found'], True)


def test_password_file_missing(stage):
    """A password file that cannot be read: answers and log name it; once it is there transfers work"""
    server = protected(stage)
    path = os.path.join(stage.new_folder(), 'later')
    daemon = stage.other_daemon(server, config={'valkey.password_file': path})
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with expect.error('server_down', 'not_usable') as refused:
            session.set(region, 0, 100, 'key')
        expect.holds(path in refused.raised.message, refused.raised)
        expect.holds(path in daemon.process.log(), daemon.process.log())
        write(path, PASSWORD)
        session.wait_until_sets_work(region)


def test_password_changes_while_running(stage):
    """A password changed at the server: connections made before go on; the file is read again for new ones"""
    server = protected(stage)
    path = password_file(stage, PASSWORD)
    daemon = stage.other_daemon(server, config={'valkey.password_file': path})
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')
        server.call('CONFIG', 'SET', 'requirepass', OTHER)
        server.password = OTHER
        session.set(region, 0, 100, 'key')
        write(path, OTHER)
        server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        session.wait_until_sets_work(region)


def test_login_is_gone(stage):
    """NOAUTH on connections that were logged in: each transfer and command is sent again after a new login, and runs
    once; the password that the file holds then counts"""
    server = protected(stage)
    path = password_file(stage, PASSWORD)
    server.store('gone', b'x')
    with ScriptedServer(server) as relay:
        daemon = stage.other_daemon(relay, config={'valkey.password_file': path, 'valkey.connections': 1,
                                                   'fabric.mr_max_bytes': '64K'})
        with stage.memory(8 * SLICE) as memory, stage.session(daemon) as session:
            region = session.register(memory)
            session.set(region, 0, 100, 'key')
            expect.equal(session.exists('key'), [True])
            for password, length in ((PASSWORD, 100), (OTHER, 3 * SLICE)):  # the latter is a command of many words
                server.store('gone', b'x')
                server.call('CONFIG', 'SET', 'requirepass', password)
                server.password = password
                write(path, password)
                connections = relay.connections
                relay.log_out()
                numbers = [session.start_set(region, 0, length, 'key'),
                           session.request('keys.delete', keys=['gone', 'no'])]
                session.wait(numbers[0])
                expect.equal(session.wait(numbers[1])['keys'], [{'deleted': True}, {'deleted': False}])
                expect.equal(session.get(region, 4 * SLICE, 3 * SLICE, 'key')['length'], length)
                expect.holds(relay.connections >= connections + 2, 'nothing was connected anew')
            relay.log_out()
            write(path, WRONG)
            with expect.error('not_usable') as refused:
                session.set(region, 0, 100, 'key')
            expect.holds('WRONGPASS' in refused.raised.message, refused.raised)
            entry = session.keys('keys.delete', 'key')[0]['error']
            expect.holds(entry['name'] == 'server_down' and 'WRONGPASS' in entry['message'], entry)
            expect.equal(server.call('EXISTS', 'key'), 1)
            write(path, OTHER)
            session.wait_until_sets_work(region)
            wait.until(lambda: session.keys('keys.delete', 'key') == [{'deleted': True}], 'commands work',
                       pause=0.05)
        stage.end(daemon)


def test_words_for_who_is_not_logged_in(stage):
    """What a real server says to a command of many or long words is taken for a login that is gone"""
    for line, words in ((b'*11\r\n', 'ERR Protocol error: unauthenticated multibulk length'),
                        (b'*3\r\n$12\r\nBLOB.TCP_SET\r\n$1\r\nk\r\n$16385\r\n',
                         'ERR Protocol error: unauthenticated bulk length')):
        server = protected(stage)
        with Resp(server.unix_path) as resp:
            resp.socket.sendall(line)
            try:
                said = resp.receive()
            except ServerError as error:
                said = str(error)
            expect.equal(said, words)


def write(path, password):
    """In one step: a daemon that reads it meanwhile has the password from before, and no empty file."""
    with open(path + '.new', 'w', encoding='utf-8') as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(password + '\n')
    os.rename(path + '.new', path)


def auths(server):
    """How often AUTH has run, and how often it failed."""
    line = next(line for line in server.call('INFO', 'commandstats').decode().splitlines()
                if line.startswith('cmdstat_auth:'))
    numbers = dict(part.split('=') for part in line.split(':')[1].split(','))
    return int(numbers['calls']) + int(numbers['rejected_calls']), int(numbers['failed_calls'])


def test_renewed_before_an_age(stage):
    """auth_max_age_ms: connections authenticate again with the file as it is then; under load nothing is lost"""
    server = protected(stage)
    path = password_file(stage, OTHER)
    daemon = stage.other_daemon(server, config={'valkey.user': 'mover', 'valkey.password_file': path,
                                                'valkey.auth_max_age_ms': 300, 'valkey.connections': 2})
    with stage.memory(8192) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')

        def moves_through(renewals):
            before, moved = auths(server)[0], 0
            while auths(server)[0] - moved - 1 < before + renewals:  # one of each look is our own
                session.set(region, 0, 100, 'key')
                session.get(region, 4096, 100, 'key')
                expect.equal(session.exists('key'), [True])
                moved += 1
            expect.holds(moved > 0, f'{moved} rounds')  # how many is the machine's business

        # A new token. The old one holds until nobody can have read it before the file had the new one.
        server.call('ACL', 'SETUSER', 'mover', '>' + PASSWORD)
        write(path, PASSWORD)
        moves_through(6)
        server.call('ACL', 'SETUSER', 'mover', 'resetpass', '>' + PASSWORD)  # who is logged in stays it
        moves_through(6)
        expect.equal(auths(server)[1], 0, 'refused')
        node = session.call('status')['nodes'][0]
        expect.equal((node['state'], node['reconnects'], node['revocations']), ('up', 0, 0))
    stage.end(daemon)
    expect.holds(PASSWORD not in daemon.process.log() and OTHER not in daemon.process.log(), 'a password in the log')


def test_renewal_is_refused(stage):
    """A renewal that is refused ends the connections in order, and log and status say why; then they are made anew"""
    server = protected(stage)
    path = password_file(stage, OTHER)
    daemon = stage.other_daemon(server, config={'valkey.user': 'mover', 'valkey.password_file': path,
                                                'valkey.auth_max_age_ms': 200})
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')
        write(path, WRONG)
        wait.until(lambda: 'AUTH was refused: WRONGPASS' in session.call('status')['nodes'][0]['why'], 'status says it')
        expect.holds('the renewal of AUTH was refused: WRONGPASS' in daemon.process.log(), daemon.process.log())
        write(path, OTHER)
        session.wait_until_sets_work(region)
        wait.until(lambda: session.call('status')['nodes'][0]['state'] == 'up', 'commands work')
    stage.end(daemon)
    expect.holds(WRONG not in daemon.process.log() and OTHER not in daemon.process.log(), 'a password in the log')


@tap.waits(100)  # for the lock of its mappings, which whoever looks at them holds
def test_password_is_wiped(stage):
    """Once the connections are up, no memory of the daemon holds the password: it can be in no core file"""
    if os.environ.get('GRD_PRELOAD'):
        raise tap.Skip('a sanitizer keeps freed memory, and maps terabytes')
    server = protected(stage)
    daemon = stage.other_daemon(server, config={'valkey.password_file': password_file(stage, PASSWORD),
                                                'valkey.warm': 'yes', 'valkey.auth_max_age_ms': 200})
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        session.set(session.register(memory), 0, 100, 'key')
        expect.holds(dump_holds(daemon.pid, daemon.path.encode()), 'the search finds what is there')
        wait.until(lambda: not dump_holds(daemon.pid, PASSWORD.encode()), 'the password is wiped', pause=0.05)


tap.run(globals(), Stage())
