"""Servers that answer nonsense, little, too much or nothing: errors with reasons, and the same connection of the client
works as soon as the server does."""
import os

from lib import expect, tap, wait
from lib.guard import HALF, SIZE, Guard
from lib.scripted_server import Answer, ScriptedServer
from lib.session import RpcError
from lib.stage import Stage
from lib.valkey import Valkey

MIB = 1 << 20
HUGE = 64 * MIB
CONFIG = {'valkey.connections': 1}
DEADLINES_MS = (1500, 6000, 24_000)


class Scripted:
    """A daemon behind a scripted server, with a guard."""

    def __init__(self, stage):
        self.server = ScriptedServer(stage.valkey)
        self.daemon = stage.other_daemon(address=f'127.0.0.1:{self.server.port}', config=CONFIG)
        self.guard = Guard(stage, self.daemon)
        self.session = self.guard.session

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.guard.close()
        self.server.close()

    def get(self, **params):
        return self.session.start_get(self.guard.region, HALF, HALF, 'guard', **{'retry': False, **params})

    def set(self, **params):
        return self.session.start_set(self.guard.region, 0, 1000, 'other', **params)

    def fails(self, number, *names):
        try:
            result = self.session.wait(number)
        except RpcError as error:
            expect.holds(error.name in names, f'{error}, wanted {names}')
            return error
        raise AssertionError(f'no error, but {result}')

    def recovers(self, what):
        """The script has ended: transfers and commands of the same connection work, and nothing more is held."""
        def works():
            try:
                self.guard.moves()
                return self.session.keys('keys.exists', 'guard') == [{'exists': True}]
            except RpcError as error:
                expect.holds(error.name in ('server_down', 'lost', 'not_usable'), f'{what}: {error}')
                return False

        wait.until(works, f'{what}: it works again', pause=0.05)
        self.guard.as_before(what)


# What the server answers, and whether it then closes the connection.
LOST = {
    'garbage': Answer(b'\x00\xff\xfe nonsense\r\n'),
    'text that is no RESP': Answer(b'HTTP/1.1 400 Bad Request\r\n\r\n'),
    'an unknown type': Answer(b'~1\r\n:1\r\n'),
    'half a reply': Answer(b'*2\r\n:100\r\n:', end=True),
    'half a line': Answer(b'+O', end=True),
    'nothing': Answer(b'', end=True),
    'a length below -1': Answer(b'$-7\r\n'),
    'a length that overflows': Answer(b'$99999999999999999999\r\n'),
    'an array that is too long': Answer(b'*1048576\r\n'),
    'arrays in arrays': Answer(b'*65536\r\n' * 20),
    'a number that is none': Answer(b':12x4\r\n'),
    'a bulk without its end': Answer(b'$3\r\nabcdef\r\n'),
}


def check_lost(stage, answers):
    with Scripted(stage) as it:
        for what, answer in answers.items():
            with it.server.script(BLOB_RDMA_GET=answer, BLOB_RDMA_SET=answer, EXISTS=answer):
                names = ('lost', 'server_error') if what == 'a bulk without its end' else ('lost',)
                error = it.fails(it.get(), *names)
                expect.holds(not error.data.get('may_have_run'), f'{what}: {error}')
                error = it.fails(it.set(), *names)
                expect.equal(error.data.get('may_have_run'), True, f'{what}: a set')
                entry = it.session.keys('keys.exists', 'guard')[0]
                expect.holds('error' in entry or what == 'a bulk without its end', f'{what}: {entry}')
                if 'error' in entry:
                    expect.holds(entry['error']['name'] in names, f'{what}: {entry}')
            it.recovers(what)
        expect.holds(it.daemon.alive(), 'the daemon ended')


def test_garbage(stage):
    """Garbage, half replies and no replies: lost, a new connection, and then all works"""
    check_lost(stage, dict(list(LOST.items())[:6]))


def test_lengths_that_cannot_be(stage):
    """Lengths and arrays that cannot be: lost, a new connection, and then all works"""
    check_lost(stage, dict(list(LOST.items())[6:]))


def test_half_a_reply_and_silence(stage):
    """Half a reply and then nothing, while the connection stays: the deadline ends it"""
    with Scripted(stage) as it:
        for data in (b'*2\r\n:100\r\n', b'+O', b''):
            answer = Answer(data)
            with it.server.script(BLOB_RDMA_GET=answer, BLOB_RDMA_SET=answer):
                it.fails(it.get(deadline_ms=200), 'deadline')
                for deadline in DEADLINES_MS:  # a connection is made first: a busy host takes long
                    error = it.fails(it.set(deadline_ms=deadline), 'deadline')
                    if error.data.get('may_have_run'):
                        break
                expect.equal(error.data.get('may_have_run'), True)
            it.recovers(repr(data))


def test_huge_bulk(stage):
    """A reply that would be huge is cut off, and does not fill the daemon's memory"""
    with Scripted(stage) as it:
        before = anonymous(it.daemon)
        for data in (b'$%d\r\n' % HUGE + b'x' * HUGE, b'+' + b'x' * HUGE, b'-ERR ' + b'x' * HUGE):
            answer = Answer(data)
            with it.server.script(BLOB_RDMA_GET=answer, EXISTS=answer):
                it.fails(it.get(), 'lost')
                expect.equal(it.session.keys('keys.exists', 'guard')[0].get('error', {}).get('name'), 'lost')
            it.recovers(repr(data[:10]))
        grown = anonymous(it.daemon) - before
        if 'GRD_PRELOAD' not in os.environ:  # a sanitizer keeps what is freed
            expect.holds(grown < 16 * MIB, f'the daemon grew by {grown >> 20} MiB')


def anonymous(daemon):
    with open(f'/proc/{daemon.pid}/status', encoding='ascii') as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith('RssAnon'))


def test_null(stage):
    """A null: a get finds nothing; a set, which must not be answered so, fails and says that it may have run"""
    with Scripted(stage) as it:
        for data in (b'$-1\r\n', b'*-1\r\n'):
            answer = Answer(data)
            with it.server.script(BLOB_RDMA_GET=answer, BLOB_RDMA_SET=answer, EXISTS=answer):
                expect.equal(it.session.wait(it.get()), {'found': False, 'length': 0})
                error = it.fails(it.set(), 'server_error')
                expect.equal(error.data.get('may_have_run'), True)
                entry = it.session.keys('keys.exists', 'guard')[0]
                expect.equal(entry['error']['name'], 'server_error')
                expect.holds('integer' in entry['error']['message'], entry)
            it.recovers(repr(data))


def pair(length, crc):
    return b'*2\r\n:%d\r\n:%d\r\n' % (length, crc)


# (what a get is answered after the real server has carried it out, words of the error)
IMPOSSIBLE = [
    (pair(HALF + 1, 0), str(HALF + 1), str(HALF)),
    (pair(2**62, 0), str(2**62)),
    (pair(-1, 0), '-1'),
    (pair(3000, 2**32), str(2**32)),
    (pair(3000, -1), '-1'),
    (b'*2\r\n$4\r\n3000\r\n$1\r\n0\r\n', 'form'),
    (b'*2\r\n:3000\r\n$1\r\n0\r\n', 'form'),
    (b'*2\r\n:3000\r\n*0\r\n', 'form'),
    (b'*1\r\n:3000\r\n', 'form'),
    (b'*3\r\n:3000\r\n:0\r\n:0\r\n', 'form'),
    (b'*0\r\n', 'form'),
    (b':3000\r\n', 'form'),
    (b'+OK\r\n', 'form'),
    (b'$4\r\n3000\r\n', 'form'),
]


def test_replies_that_cannot_be_true(stage):
    """Lengths over the window, checksums that are none, integers as text, wrong forms: errors that say so"""
    with Scripted(stage) as it:
        for data, *words in IMPOSSIBLE:
            with it.server.script(BLOB_RDMA_GET=Answer(data, ask=True)):
                error = it.fails(it.get(), 'server_error')
                for word in words:
                    expect.holds(word in error.message, f'{data!r}: "{word}" is not in: {error.message}')
            it.recovers(repr(data))
        for data in (b':1\r\n', b'$2\r\nOK\r\n', b'*1\r\n+OK\r\n', b'+QUEUED\r\n', b'+\r\n'):
            with it.server.script(BLOB_RDMA_SET=Answer(data, ask=True)):
                error = it.fails(it.set(), 'server_error')
                expect.equal(error.data.get('may_have_run'), True, repr(data))
            it.recovers(repr(data))


def test_integers_as_text(stage):
    """Commands on keys that are answered by texts, arrays and statuses: each entry says so"""
    with Scripted(stage) as it:
        for data in (b'$1\r\n1\r\n', b'+1\r\n', b'*1\r\n:1\r\n', b'*0\r\n'):
            answer = Answer(data)
            with it.server.script(EXISTS=answer, DEL=answer, PEXPIRE=answer):
                for method, more in (('keys.exists', {}), ('keys.delete', {}), ('keys.expire', {'ttl_ms': 1000})):
                    entries = it.session.call(method, keys=['a', 'b'], **more)['keys']
                    expect.equal([entry.get('error', {}).get('name') for entry in entries], ['server_error'] * 2)
            it.guard.unharmed(repr(data))


def test_strange_information(stage):
    """BLOB.INFO with strange members: what cannot be true is left out or refused"""
    with Scripted(stage) as it:
        for data in (b'*3\r\n$3\r\nlen\r\n:5\r\n$3\r\ncrc\r\n', b':1\r\n', b'$-1\r\n', b'*2\r\n:1\r\n:2\r\n',
                     b'*2\r\n$3\r\nlen\r\n$1\r\n5\r\n', b'*2\r\n$3\r\nlen\r\n:-5\r\n', b'*2\r\n$4\r\ntier\r\n$2\r\n\xff\x00\r\n',
                     b'*2\r\n*1\r\n:1\r\n*0\r\n', b'-ERR \xff\x01\r\n'):
            with it.server.script(**{'BLOB_INFO': Answer(data)}):
                entry = it.session.keys('keys.info', 'guard')[0]
                expect.holds('error' in entry or 'found' in entry, entry)
                expect.holds(entry.get('length', 0) >= 0, f'{data!r}: {entry}')
            it.guard.unharmed(repr(data))


def test_more_replies_than_commands(stage):
    """Replies that nobody asked for end the connection, and are not taken for those of the next command"""
    with Scripted(stage) as it:
        with it.server.script(BLOB_RDMA_GET=Answer(lambda reply: reply + pair(5, 5), ask=True)):
            outcome = it.session.outcome(it.get())
            expect.holds(outcome in ('ok', 'lost'), outcome)
        it.recovers('a surplus reply of a get')
        with it.server.script(EXISTS=Answer(b':1\r\n:0\r\n:0\r\n')):
            it.session.keys('keys.exists', 'guard')
        it.recovers('surplus replies of a command')


def test_pushes(stage):
    """Pushes of RESP3, which nobody asks for: before a reply, behind one, unasked; none is taken for a reply"""
    push = b'>2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nguard\r\n'
    with Scripted(stage) as it:
        before = Answer(lambda reply: push + reply, ask=True)
        with it.server.script(BLOB_RDMA_GET=before, BLOB_RDMA_SET=before, EXISTS=before):
            it.fails(it.get(), 'lost')
            expect.equal(it.fails(it.set(), 'lost').data['may_have_run'], True)
            expect.equal(it.session.keys('keys.exists', 'guard')[0]['error']['name'], 'lost')
        it.recovers('a push before a reply')
        behind = Answer(lambda reply: reply + push, ask=True)
        with it.server.script(BLOB_RDMA_GET=behind, EXISTS=behind):
            expect.holds(it.session.outcome(it.get()) in ('ok', 'lost'), 'a get')
            expect.equal(it.session.keys('keys.exists', 'guard'), [{'exists': True}])
        it.recovers('a push behind a reply')
        reconnects = it.session.call('status')['nodes'][0]['reconnects']
        it.server.say(push)
        wait.until(lambda: it.session.call('status')['nodes'][0]['reconnects'] > reconnects, 'a new connection',
                   pause=0.05)
        it.recovers('a push unasked')
        expect.holds('a type that RESP2 does not have' in it.daemon.process.log(), 'the log says why')


def test_session_garbage(stage):
    """Garbage when a BLOB session is made: transfers say so, and work later"""
    with Scripted(stage) as it:
        for data, *words in ((b'\x00\x01\r\n',), (b'*0\r\n', 'RDMA_HELLO'), (b'$-1\r\n', 'RDMA_HELLO'), (b':1\r\n', 'RDMA_HELLO'),
                             (b'*1\r\n$3\r\nzzz\r\n', 'RDMA_HELLO'), (b'*1\r\n$4\r\nzzzz\r\n', 'hexadecimal'),
                             (b'*2\r\n$2\r\n00\r\n$4\r\n0000\r\n', 'length'), (b'*1\r\n$2000\r\n' + b'0' * 2000 + b'\r\n', 'length'),
                             (b'-ERR not today\r\n', 'not today')):
            with it.server.script(BLOB_RDMA_HELLO=Answer(data)):
                it.server.drop()
                said = []

                def refused(words=words, said=said):
                    said.append(it.fails(it.get(), 'not_usable', 'server_error', 'server_down', 'lost').message)
                    return all(word in said[-1] for word in words)

                wait.until(refused, lambda data=data, said=said: f'{data!r}: {words} in {said[-1]}', pause=0.05)
            it.recovers(repr(data))


def test_without_module(stage):
    """A server without the module: the error names it, keys.* work, and transfers do when it is there"""
    server = stage.other_valkey(module=False)
    daemon = stage.other_daemon(server, config=CONFIG)
    session = stage.session(daemon)
    region = session.register(stage.memory(SIZE))
    before = daemon.fd_count()
    for _ in range(3):
        for start in (session.start_get, session.start_set):
            with expect.error('not_usable') as missing:
                session.wait(start(region, 0, 100, 'key'))
            expect.holds('module' in missing.raised.message, missing.raised)
        expect.equal(session.exists('key'), [False])
    wait.until(lambda: daemon.fd_count() <= before + 4, lambda: f'descriptors: {daemon.fds()}')
    server.module = True
    server.restart()
    session.wait_until_sets_work(region)
    expect.equal(session.get(region, 0, 100, 'key')['length'], 100)


def test_wrong_password(stage):
    """A wrong password: the error says what the server said and never the password; when it is right all works"""
    server = stage.other_valkey(options={'requirepass': 'the-right-one'})
    server.password = 'the-right-one'
    path = os.path.join(stage.new_folder(), 'password')
    write(path, 'the-wrong-one')
    daemon = stage.other_daemon(server, config={**CONFIG, 'valkey.password_file': path})
    session = stage.session(daemon)
    region = session.register(stage.memory(SIZE))
    with expect.error('server_down', 'not_usable') as refused:
        session.set(region, 0, 100, 'key')
    expect.holds('WRONGPASS' in refused.raised.message, refused.raised)
    expect.holds('the-wrong-one' not in refused.raised.message + daemon.process.log(), 'the password is shown')
    write(path, 'the-right-one')
    session.wait_until_sets_work(region)
    expect.equal(session.get(region, 0, 100, 'key')['length'], 100)


def write(path, text):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text + '\n')


def test_server_down(stage):
    """A server that is down: the error names its address and why; when it is up all works"""
    server = Valkey(stage.new_folder(), start=False)
    daemon = stage.other_daemon(address=f'127.0.0.1:{server.port}', config=CONFIG)
    session = stage.session(daemon)
    region = session.register(stage.memory(SIZE))
    before = daemon.fd_count()
    for _ in range(3):
        for start in (session.start_get, session.start_set):
            with expect.error('server_down') as down:
                session.wait(start(region, 0, 100, 'key'))
            expect.holds(str(server.port) in down.raised.message and 'refused' in down.raised.message, down.raised)
            expect.holds(not down.raised.data.get('may_have_run'), down.raised)
        expect.equal(session.keys('keys.exists', 'key')[0]['error']['name'], 'server_down')
    wait.until(lambda: daemon.fd_count() <= before, lambda: f'descriptors: {daemon.fds()}')
    server.start()
    try:
        session.wait_until_sets_work(region)
        expect.equal(session.get(region, 0, 100, 'key')['length'], 100)
    finally:
        server.stop()


tap.run(globals(), Stage())
