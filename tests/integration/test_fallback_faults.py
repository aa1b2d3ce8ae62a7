"""Values over TCP when things go wrong: taken back in mid-bytes, servers that end or answer nonsense, holes."""
import os
import threading

from lib import crc, expect, tap, wait
from lib.fuse import Fuse
from lib.memory import MIB, PAGE, noise
from lib.scripted_server import Answer, ScriptedServer
from lib.session import RpcError
from lib.stage import Stage

SIZE = 64 * MIB
MARK, VALUE = 0xEE, 0x5A


def with_fallback(stage, **arguments):
    config = {'valkey.fallback': 'tcp', 'fabric.revoke_grace_ms': 10, **arguments.pop('config', {})}
    return stage.other_daemon(config=config, **arguments)


def half(size):
    """The first half of a value of so many bytes."""
    return b'$%d\r\n' % size + bytes([VALUE]) * (size // 2)


def test_get_taken_back(stage):
    """A get in mid-bytes: a cancel, a deadline and a client that leaves; the window is not touched afterwards"""
    with ScriptedServer(stage.valkey) as server, stage.memory(SIZE) as memory:
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session, server.script(BLOB_TCP_GET=Answer(half(SIZE))):
            region = session.register(memory)
            for way in ('cancel', 'deadline'):
                memory.fill(MARK)
                # Half of the value comes; before a deadline a page at least, on a busy host.
                limit, there = ({'deadline_ms': 5000}, PAGE) if way == 'deadline' else ({}, SIZE // 2 - 1)
                number = session.start_get(region, 0, SIZE, 'key', **limit)
                wait.until(lambda: memory.holds(VALUE, there - PAGE, there), 'a part of the value is there')
                if way == 'cancel':
                    expect.equal(session.call('transfer.cancel', id=number), {'cancelled': True})
                expect.equal(session.outcome(number), 'cancelled' if way == 'cancel' else 'deadline')
                memory.fill(MARK)
                expect.holds(not wait.soon(lambda: not memory.holds(MARK), 0.3), 'a byte was written after the answer')
            session.start_get(region, 0, SIZE, 'key')
            wait.until(lambda: memory.holds(VALUE, 0, SIZE // 2 - PAGE), 'half of the value is there')
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the daemon lets go of a client that left')


def test_worker_has_the_window(stage):
    """A get that is cancelled while its bytes wait for a worker: the answer comes when that has let go, not before"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to mount a FUSE')
    daemon = with_fallback(stage)
    stage.valkey.store('value', bytes([VALUE]) * MIB)
    with Fuse(stage.new_folder(), PAGE) as fuse, stage.memory(MIB, fill=MARK) as memory, \
            stage.session(daemon) as session:
        region = session.register(memory)
        files = [fuse.open() for _ in range(2)]  # as many jobs of a user as run at once
        fuse.flush.clear()
        for fd in files:
            with expect.error('bad_fd'):
                session.call('region.register', fds=(fd,), type='memfd', size=PAGE)
        number = session.start_get(region, 0, MIB, 'value')
        wait.until(lambda: session.call('status')['nodes'][0]['carriers_busy'] == 1, 'the get is at work')
        session.call('transfer.cancel', id=number)
        expect.holds(not wait.soon(lambda: session.answered(number), 0.5), 'answered while a job had the window')
        fuse.flush.set()
        expect.equal(session.outcome(number), 'cancelled')
        expect.holds(memory.holds(MARK), 'a byte was written for a transfer that was taken back')
        for fd in files:
            os.close(fd)


def test_set_taken_back(stage):
    """A set to a server that reads nothing: cancelled, nothing stored; the window may be refilled at once"""
    server = stage.other_valkey(module_options={'fabric-interfaces': 'no-such-interface'})
    daemon = with_fallback(stage, valkey=server)
    with stage.memory(SIZE, fill=VALUE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'first')
        server.process.freeze()
        number = session.start_set(region, 0, SIZE, 'key')
        wait.until(lambda: daemon.bytes_unsent() > 0, 'the server takes no more')
        session.call('transfer.cancel', id=number)
        with expect.error('cancelled'):
            session.wait(number)
        memory.fill(MARK)
        server.process.thaw()
        expect.equal(session.set(region, 0, 1000, 'other')['path'], 'tcp')
        expect.equal(server.call('EXISTS', 'key'), 0)
        expect.equal(server.value('other'), bytes([MARK]) * 1000)


def test_server_killed(stage):
    """A server that is killed in mid-bytes of a set: server_down, and it cannot have run"""
    server = stage.other_valkey(module_options={'fabric-interfaces': 'no-such-interface'})
    daemon = with_fallback(stage, valkey=server)
    with stage.memory(SIZE, fill=VALUE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'first')
        server.process.freeze()
        number = session.start_set(region, 0, SIZE, 'key')
        wait.until(lambda: daemon.bytes_unsent() > 0, 'the server takes no more')
        server.stop()
        with expect.error('server_down') as failed:
            session.wait(number)
        expect.equal(failed.raised.data['may_have_run'], False)
        server.start()
        session.wait_until_sets_work(region, length=SIZE)
        expect.equal(len(server.value('key')), SIZE)


def lost(session, request):
    with expect.error('lost') as failed:
        session.wait(request)
    return failed.raised


def test_answer_lost(stage):
    """The end after the last byte of a set: lost, it may have run; a get is run again"""
    with ScriptedServer(stage.valkey) as server, stage.memory(MIB, fill=VALUE) as memory:
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session:
            region = session.register(memory)
            with server.script(BLOB_TCP_SET=Answer(b'', end=True, ask=True)):
                expect.equal(lost(session, session.start_set(region, 0, MIB, 'key')).data['may_have_run'], True)
            expect.equal(stage.valkey.value('key'), bytes([VALUE]) * MIB)
            with server.script(BLOB_TCP_GET=Answer(half(MIB), end=True)):
                expect.equal(lost(session, session.start_get(region, 0, MIB, 'key')).data['attempts'], 4)
                lost(session, session.start_get(region, 0, MIB, 'key', retry=False))
            memory.fill(MARK)
            session.get(region, 0, MIB, 'key')
            expect.holds(memory.holds(VALUE), 'value')


def test_wrong_replies(stage):
    """Replies to a get that are none: the connection ends, nothing beyond the announced bytes is written"""
    wrong = (b':5\r\n', b'+OK\r\n', b'*1\r\n$1\r\nx\r\n', b'$-2\r\n', b'$\r\n', b'$+5\r\nhello\r\n',
             b'$05\r\nhello\r\n', b'$99999999999999999999\r\n', b'$5\rhello\r\n',
             b'$5\r\nhello!\r\n', b'$5\r\nhello\r\r',
             b'$' + b'1' * 2000, b'-' + b'x' * 5000, b'\r\n', b'_\r\n', b'$?\r\n', b'$0\r\n\n\n')
    with ScriptedServer(stage.valkey) as server, stage.memory(PAGE, fill=MARK) as memory:
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session:
            region = session.register(memory)
            for data in wrong:
                with server.script(BLOB_TCP_GET=Answer(data, end=len(data) > 1000)):
                    lost(session, session.start_get(region, 0, PAGE, 'key', retry=False))
                expect.holds(memory.holds(MARK, 5), f'{data[:20]}: bytes were written')
            with server.script(BLOB_TCP_GET=Answer(b'$9007199254740991\r\n' + b'x' * 4000)):
                with expect.error('need_larger_window') as refused:
                    session.get(region, 0, PAGE, 'key')
                expect.equal(refused.raised.data['need'], 9007199254740991)
            expect.holds(memory.holds(MARK, 5), 'bytes were written')
            with server.script(BLOB_TCP_GET=Answer(b'-ERR disk staging buffer pool exhausted; retry later\r\n')):
                with expect.error('server_error'):
                    session.get(region, 0, PAGE, 'key', retry=False)
            stage.valkey.store('key', b'hello')
            expect.equal(session.get(region, 0, PAGE, 'key')['length'], 5)
            expect.equal(memory[0:5], b'hello')


def test_checksum_not_told(stage):
    """BLOB.INFO that is refused: a get has no checksum; a set with one says that the value was not compared"""
    data = noise(5000)
    with ScriptedServer(stage.valkey) as server, stage.memory(2 * PAGE) as memory:
        memory[0:5000] = data
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session:
            region = session.register(memory)
            session.set(region, 0, 5000, 'key')
            with server.script(BLOB_INFO=Answer(b"-NOPERM User has no permissions to run 'blob.info'\r\n")):
                expect.equal(session.get(region, 0, 5000, 'key'), {'found': True, 'length': 5000, 'path': 'tcp'})
                with expect.error('server_error') as failed:
                    session.set(region, 0, 5000, 'key', crc32c=crc.crc32c(data))
                expect.equal(failed.raised.data['may_have_run'], True)
                expect.holds('NOPERM' in failed.raised.message, failed.raised)
            with server.script(BLOB_INFO=Answer(b'', end=True)):
                lost(session, session.start_set(region, 0, 5000, 'key', crc32c=crc.crc32c(data)))
            expect.equal(session.get(region, 0, 5000, 'key')['crc32c'], crc.crc32c(data))


def test_holes(stage):
    """Holes punched all the time: values, zeros or old bytes, never others; the daemon goes on"""
    daemon = with_fallback(stage)
    stage.valkey.store('value', bytes([VALUE]) * 16 * MIB)
    with stage.memory(32 * MIB, fill=MARK) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        ending = threading.Event()

        def punch():
            at = 0
            while not ending.is_set():
                memory.punch(at, 64 * 1024)
                at = (at + 7 * 64 * 1024) % (32 * MIB)

        thread = threading.Thread(target=punch)
        thread.start()
        try:
            for _ in range(10):
                session.get(region, 0, 16 * MIB, 'value')
                session.set(region, 16 * MIB, 16 * MIB, 'holes')
        finally:
            ending.set()
            thread.join()
        for data, allowed in ((memory[0:16 * MIB], (VALUE, 0)), (stage.valkey.value('holes'), (MARK, 0))):
            expect.equal(sum(data.count(byte) for byte in allowed), 16 * MIB, f'bytes that are one of {allowed}')
        session.get(region, 0, 16 * MIB, 'value')
        expect.holds(memory.holds(VALUE, 0, 16 * MIB), 'value')


def test_refusals_for_now(stage):
    """LOADING and the like in place of an answer: sent again, sets too"""
    with ScriptedServer(stage.valkey) as server, stage.memory(PAGE, fill=VALUE) as memory:
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session, server.script(
                BLOB_TCP_SET=Answer(b'-LOADING Valkey is loading the dataset in memory\r\n'),
                BLOB_TCP_GET=Answer(b'-TRYAGAIN later\r\n')):
            region = session.register(memory)
            stage.valkey.store('small', b'x' * 100)
            numbers = [session.start_set(region, 0, 100, 'key'), session.start_get(region, 1000, 100, 'small')]
            wait.until(lambda: session.call('status')['transfers']['run_again'] >= 4, 'they are run again')
            server.answers = {}
            expect.equal([session.outcome(number) for number in numbers], ['ok', 'ok'])


def test_rdma_comes_back(stage):
    """While connections over TCP are idle and at work: new transfers go by RDMA, those at work end well over TCP"""
    real = stage.other_valkey()
    with ScriptedServer(real) as server, stage.memory(2 * MIB, fill=MARK) as memory:
        daemon = with_fallback(stage, address=f'127.0.0.1:{server.port}', config={'valkey.fallback_retry_ms': 3600000})
        refusal = Answer(b'-ERR RDMA provider unavailable on this instance\r\n')
        with stage.session(daemon) as session:
            region = session.register(memory)
            with server.script(BLOB_RDMA_HELLO=refusal):
                # One at first, which asks for RDMA once: of several a late one would ask when nobody refuses any more.
                expect.equal(session.set(region, 0, 100, 'key 0')['path'], 'tcp')
                numbers = [session.start_set(region, n * PAGE, 100, f'key {n}') for n in range(4)]
                expect.equal([session.wait(number)['path'] for number in numbers], 4 * ['tcp'])
                server.answers = {b'BLOB.RDMA_HELLO': refusal, b'BLOB.TCP_GET': Answer(half(MIB))}
                at_work = session.start_get(region, MIB, MIB, 'key 0', deadline_ms=120_000)
                wait.until(lambda: memory.holds(VALUE, MIB, MIB + MIB // 4), 'a get is at work')
            expect.equal(session.set(region, 0, 100, 'still')['path'], 'tcp', 'nothing told the daemon')
            session.exists('x')
            for line in real.call('CLIENT', 'LIST').decode().splitlines():
                words = dict(word.split('=', 1) for word in line.split() if '=' in word)
                if words['cmd'] == 'exists':
                    real.call('CLIENT', 'KILL', 'ID', words['id'])
            session.outcome(session.request('keys.exists', keys=['x']))  # its connection ends, and is made anew
            wait.until(lambda: session.call('status')['nodes'][0]['reconnects'] == 1, 'the node is up again')
            expect.equal(session.set(region, 0, 100, 'again')['path'], 'rdma')
            node = session.call('status')['nodes'][0]
            expect.equal((node['path'], node['carriers_busy']), ('rdma', 1))
            session.call('transfer.cancel', id=at_work)
            expect.equal(session.outcome(at_work), 'cancelled')
            expect.equal(session.get(region, MIB, 100, 'again')['path'], 'rdma')


def test_draining(stage):
    """A daemon that stops while a get hangs in mid-bytes ends in order"""
    with ScriptedServer(stage.valkey) as server, stage.memory(MIB) as memory:
        daemon = stage.other_daemon(config={'valkey.fallback': 'tcp', 'daemon.drain_ms': 100},
                                    address=f'127.0.0.1:{server.port}')
        with stage.session(daemon) as session, server.script(BLOB_TCP_GET=Answer(half(MIB))):
            number = session.start_get(session.register(memory), 0, MIB, 'key')
            wait.until(lambda: memory.holds(VALUE, 0, MIB // 4), 'half of the value is there')
            expect.equal(daemon.stop(), 0)
            try:
                session.wait(number)
            except RpcError as error:
                expect.equal(error.name, 'interrupted')
        stage.forget(daemon)


tap.run(globals(), Stage(module_options={'fabric-interfaces': 'no-such-interface'}))
