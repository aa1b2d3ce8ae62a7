"""Clients that mean harm, or die at a bad moment: the daemon lives, its loop never waits, and nobody else notices."""
import contextlib
import os
import resource
import select
import signal
import socket
import time

from lib import expect, tap, wait
from lib.lingering import LINGER_SECONDS, WORKERS_PER_USER, Lingering
from lib.memory import memory_fd
from lib.session import Session
from lib.stage import Stage
from lib.users import NOBODY, as_nobody

SIZE = 1 << 20
WORKERS = 8
DEADLINE_MS = 4000


def status(daemon):
    with Session(daemon.admin_path, hello=False) as operator:
        return operator.call('status')


def sessions(daemon):
    return status(daemon)['daemon']['sessions'] - 1  # without the one that asks


def longest_answer(session, seconds):
    """Seconds that the slowest of many commands took."""
    longest = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        session.call('status')
        longest = max(longest, time.monotonic() - begun)
        time.sleep(0.01)
    return longest


def cpu_seconds(daemon):
    with open(f'/proc/{daemon.pid}/stat', encoding='ascii') as file:
        words = file.read().rsplit(')', 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def test_deadline_after_the_end(stage):
    """The client leaves, and then the deadline comes, while the memory of a transfer is being registered"""
    paths = [os.path.join(stage.new_folder(), 's.sock') for _ in range(WORKERS // WORKERS_PER_USER)]
    config = {f'socket s{n}.path': path for n, path in enumerate(paths)}
    daemon = stage.other_daemon(config={**config, 'valkey.connections': 1})
    stage.valkey.store('value', b'v' * 100)
    with Lingering() as lingering, stage.memory(SIZE) as memory, stage.memory(SIZE) as other:
        last = stage.session(daemon)
        last.get(last.register(other), 0, 100, 'value')  # the lane is there
        session = stage.session(daemon)
        region = session.register(memory)
        lingering.hang(daemon, *[Session(path) for path in paths])
        begun = time.monotonic()
        session.start_get(region, 0, 100, 'value', deadline_ms=DEADLINE_MS)
        wait.until(lambda: last.call('status')['transfers']['open'] == 1, 'the transfer waits for a worker')
        session.close()
        wait.until(lambda: time.monotonic() - begun > DEADLINE_MS / 1000 + 0.2, 'the deadline has passed')
        last.call('status')  # so has the daemon's timer
        lingering.close()
        wait.until(lambda: last.call('status')['transfers']['open'] == 0, 'the transfer ends')
        ended = last.call('status')['transfers']['ended']
        expect.equal((ended['client gone, not sent'], ended['deadline, not sent']), (1, 0), str(ended))
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the memory is given up')
        last.get(last.register(other), 0, 100, 'value')


def test_descriptors_that_were_never_read(stage):
    """Descriptors in packets that the daemon does not read any more are not closed on the loop either"""
    daemon = stage.other_daemon(config={'limits.sessions_per_user': 3})
    with Lingering() as lingering, Session(daemon.admin_path, hello=False) as operator:
        flooding, *others = [stage.session(daemon) for _ in range(3)]
        daemon.process.freeze()
        surplus = Session(daemon.path, hello=False)
        give_away(surplus, lingering.fd())
        daemon.process.thaw()
        surplus.wait_end(LINGER_SECONDS / 3)
        expect.equal(surplus.last_packet.get('method'), 'session.closed')
        daemon.process.freeze()
        for _ in range(64):
            flooding.send_bytes(b'{')
        give_away(flooding, lingering.fd())
        daemon.process.thaw()
        longest = longest_answer(operator, 4)
        expect.holds(longest < LINGER_SECONDS / 3, f'the loop waited for {longest:.2f} s')
        flooding.wait_end()
        expect.equal([session.exists('x') for session in others], [[False], [False]])


def give_away(session, fd):
    """Sends a descriptor that nobody else has then."""
    session.send_bytes(b'{', [fd])
    os.close(fd)


def test_flood_of_descriptors(stage):
    """While a user's descriptors cannot be closed, it is not read: the daemon does not run out of descriptors"""
    daemon = stage.other_daemon()
    with Lingering() as lingering:
        session = stage.session(daemon)
        before = daemon.fd_count()
        lingering.hang(daemon, session)
        fds = [memory_fd('flood', 4096)] * 100
        session.socket.setblocking(False)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                session.request('status', fds)
            except OSError:  # full, or ETOOMANYREFS: as many as we may have are on their way
                time.sleep(0.01)
            forget_answers(session)
        held = daemon.fd_count() - before
        expect.holds(held < 1000, f'the daemon holds {held} descriptors more')
        session.socket.setblocking(True)
        os.close(fds[0])
        lingering.close()
        wait.until(lambda: forget_answers(session) == 0 and daemon.memfd_fds('flood') == 0, 'all are closed')
        session.call('status')


def test_flood_of_connections(stage):
    """While a user's descriptors cannot be closed, connections that come and go leave nothing behind"""
    daemon = stage.other_daemon(config={'limits.sessions_per_user': 3})
    with Lingering() as lingering:
        session = stage.session(daemon)
        before = daemon.fd_count()
        lingering.hang(daemon, session)
        for _ in range(300):
            with Session(daemon.path, hello=False) as other, contextlib.suppress(OSError):  # of one that is refused
                other.send_bytes(b'{')
        wait.until(lambda: session.call('status')['user']['sessions'] == 1, 'only one session is left',
                   LINGER_SECONDS / 2)
        held = daemon.fd_count() - before
        expect.holds(held < 20, f'the daemon holds {held} descriptors more')
    session.close()


def test_flood_of_descriptors_that_nobody_reads(stage):
    """Connections with descriptors in them, whose closing hangs: so many are held, then the socket waits; later all is well"""
    daemon = stage.other_daemon(limits=[(resource.RLIMIT_NOFILE, 4096)])
    most = 512  # of a user, with this limit
    with Lingering() as lingering, Session(daemon.admin_path, hello=False) as operator:
        session = as_nobody(lambda: stage.session(daemon))
        lingering.hang(daemon, session)
        before = daemon.fd_count()
        fd = memory_fd('flood', 4096)
        for _ in range(most + 200):
            with as_nobody(lambda: Session(daemon.path, hello=False)) as other, contextlib.suppress(OSError):
                give_away(other, os.dup(fd))
        # sessions whose client has left may take their turns yet
        wait.until(lambda: daemon.fd_count() - before < most + 60, 'the daemon holds no more descriptors than that', 60)
        operator.call('status')
        with stage.session(daemon) as newcomer:
            expect.equal(newcomer.exists('x'), [False])
        lingering.close()
        wait.until(lambda: daemon.fd_count() <= before, 'all are closed')
        os.close(fd)


def forget_answers(session, seconds=0):
    """Takes in what is there, until nothing comes for so long; returns how many came."""
    count = 0
    while session.receive(seconds):
        count += 1
        session.answers.clear()
        session.without_id.clear()
    return count


def test_death_while_registering(stage):
    """A client that leaves while its region waits for a worker: the loop does not spin until then"""
    daemon = stage.other_daemon()
    with Lingering() as lingering, stage.memory(SIZE) as memory, Session(daemon.admin_path, hello=False) as operator:
        session = stage.session(daemon)
        lingering.hang(daemon, session)
        session.request('region.register', fds=(memory.fd,), type='memfd', size=SIZE)
        fill(session)  # answers wait in the daemon, and are fetched after the end of the requests
        session.socket.shutdown(socket.SHUT_WR)
        forget_answers(session, 0.3)
        begun, used = time.monotonic(), cpu_seconds(daemon)
        time.sleep(1)
        used = (cpu_seconds(daemon) - used) / (time.monotonic() - begun)
        expect.equal(operator.call('status')['memory']['regions'], 1, 'regions while the workers hang')
        expect.holds(used < 0.3, f'the daemon used {used:.0%} of a processor while it waited')
        lingering.close()
        session.wait_end()
        expect.equal(session.last_packet.get('method'), 'session.closed')
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the memory is given up')


def test_dead_clients_of_a_hanging_server(stage):
    """Sessions end although the server never answers their keys.*"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'limits.sessions_per_user': 5})
    with stage.session(daemon) as session:
        session.exists('x')
    server.process.freeze()
    for _ in range(4):
        clients = [stage.session(daemon) for _ in range(5)]
        for client in clients:
            client.request('keys.exists', keys=['x'] * 10)
            wait.until(lambda c=client: c.call('status')['session']['requests'] == 1, 'the request waits')
            client.close()
        wait.until(lambda: sessions(daemon) == 0, 'the sessions are gone')
    server.process.thaw()
    with stage.session(daemon) as session:
        expect.equal(session.exists('x'), [False])


def test_stop_with_a_hanging_server(stage):
    """SIGTERM while the server does not answer keys.*: exit status 0, and in time"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'daemon.drain_ms': 120_000})
    session = stage.session(daemon)
    session.exists('x')
    server.process.freeze()
    session.request('keys.exists', keys=['x'])
    wait.until(lambda: session.call('status')['session']['requests'] == 1, 'the request waits')
    daemon.process.signal(signal.SIGTERM)
    session.wait_end()
    expect.equal(session.last_packet.get('method'), 'session.closed')
    expect.equal(daemon.process.wait(60), 0)  # and not after drain_ms


def test_stop_with_a_client_that_never_reads(stage):
    """SIGTERM while a client does not read and its transfer is taken back late: exit status 0"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'daemon.drain_ms': 100})
    with Lingering(3) as lingering, stage.memory(SIZE) as memory:  # the daemon's end waits five seconds for its workers
        session = stage.session(daemon)
        fill(session)
        other = stage.session(daemon)
        lingering.hang(daemon, other)  # what its user closes waits
        other.request('region.register', fds=(memory.fd,), type='memfd', size=SIZE)
        wait.until(lambda: status(daemon)['memory']['regions'] == 1, 'it is being registered')
        fill(other)
        daemon.process.signal(signal.SIGTERM)
        expect.equal(daemon.process.wait(40), 0)


def fill(session):
    """Sends without reading, until nothing can be sent any more. Returns the numbers of what was sent."""
    numbers = []
    session.socket.setblocking(False)
    while select.select([], [session.socket], [], 0.3)[1]:
        try:
            while True:
                number = session.next_id
                session.request('status')
                numbers.append(number)
        except BlockingIOError:
            pass
    session.socket.setblocking(True)
    return numbers


def test_client_that_shuts_its_receiving_side(stage):
    """A client that can receive nothing any more is gone, although it could still send"""
    daemon = stage.other_daemon()
    with stage.memory(SIZE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with stage.valkey.faults(test_delay_before_reply_ms=2000):
            session.start_set(region, 0, 10, 'key')
            wait.until(lambda: stage.valkey.info('transfers') == 1, 'the transfer runs')
            session.socket.shutdown(socket.SHUT_RD)
            wait.until(lambda: sessions(daemon) == 0, 'the session is gone')
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the memory is given up')


def test_large_answers_that_nobody_reads(stage):
    """Large answers that are not fetched are bounded in bytes, too"""
    daemon = stage.other_daemon()
    with stage.memory(SIZE) as memory, stage.session(daemon) as other, stage.session(daemon) as session:
        for number in range(100):
            session.register(memory, size=4096, label=f'{number}' + 'l' * 240)
        before = rss(daemon)
        numbers = fill(session)
        other.exists('x')
        grown = rss(daemon) - before
        if 'GRD_PRELOAD' not in os.environ:  # a sanitizer keeps what is freed
            expect.holds(grown < 16 << 20, f'the daemon grew by {grown >> 20} MiB')
        for number in numbers:
            session.wait(number)
        expect.equal(session.exists('x'), [False])


def rss(daemon):
    with open(f'/proc/{daemon.pid}/status', encoding='ascii') as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith('RssAnon'))


def test_flood_of_keys(stage):
    """A user that floods a hanging server with keys.* leaves room for the commands of another"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    session = stage.session(daemon)
    session.exists('x')
    os.seteuid(NOBODY)
    try:
        other = stage.session(daemon)
    finally:
        os.seteuid(0)
    server.process.freeze()
    for n in range(60):
        session.request('keys.exists', keys=['x' * 100] * 256)
    wait.until(lambda: session.receive(0) or session.answers, 'a flood is told so')
    while session.receive(0.1):
        pass
    number = other.request('keys.exists', keys=['x'] * 100)
    other.call('status')
    server.process.thaw()
    expect.equal(other.wait(number), {'keys': [{'exists': False}] * 100})
    for n in range(2, session.next_id):
        expect.holds(session.outcome(n) in ('ok', 'busy'), session.answers[n])
    expect.equal(session.exists('x'), [False])


def test_many_keys_and_a_long_reason(stage):
    """256 keys while the server is down for a reason that takes many words: an answer that fits the packet"""
    daemon = stage.other_daemon(address='unix:/' + 'very-long-path/' * 6 + 'x')
    with stage.session(daemon) as session:
        entries = session.keys('keys.delete', *['k'] * 256)
        expect.equal(len(entries), 256)
        expect.equal({entry['error']['name'] for entry in entries}, {'server_down'})


def test_names_that_are_no_text(stage):
    """A path that is no UTF-8 in the configuration does not spoil the answers that name it"""
    daemon = stage.other_daemon(start=False, address='')
    overlays = os.path.join(daemon.folder, 'conf.d')
    os.mkdir(overlays)
    del daemon.sections['valkey']['address']
    with open(os.path.join(overlays, 'bytes.conf'), 'wb') as file:
        file.write(b'[valkey]\naddress = unix:/nowhere/\xff\n')
    daemon.start()
    with stage.session(daemon) as session:
        expect.holds('why' in session.hello and not session.hello['usable'], session.hello)
        expect.equal(session.call('status')['nodes'][0]['address'], 'unix:/nowhere/\ufffd')
        expect.equal(session.call('status')['user']['sessions'], 1)


def test_socket_of_another_user(stage):
    """A socket that the daemon may not even ask is somebody else's: it is left alone"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    daemon = stage.other_daemon(start=False, uid=NOBODY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ours:
        ours.bind(daemon.path)
        os.chmod(daemon.path, 0o600)
        ours.listen()
        daemon.begin()
        expect.holds(daemon.process.wait() not in (0, None), 'the daemon should not have started')
        expect.holds(daemon.path in daemon.process.log(), daemon.process.log())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(daemon.path)


tap.run(globals(), Stage())
