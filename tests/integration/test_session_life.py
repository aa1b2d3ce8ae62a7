"""Sessions: how they begin, what ends with them, and what they leave behind (nothing)."""
import json
import os
import select

from lib import expect, grd, tap, wait
from lib.memory import MIB
from lib.session import Session
from lib.stage import Stage


def test_hello(stage):
    """hello tells version, limits, fabric, and brings the daemon's pidfd"""
    with stage.session() as session:
        hello = session.hello
        expect.equal(hello['protocol'], 1)
        expect.holds(hello['server'].startswith('glide-rdmad '), hello)
        wait.until(lambda: stage.session().hello['usable'], 'usable')
        expect.equal(hello['fabric']['provider'], 'tcp')
        expect.equal(hello['limits']['message_bytes'], 65536)
        for name in ('regions', 'in_flight', 'region_bytes', 'requests'):
            expect.holds(hello['limits'][name] > 0, name)
        with open(f'/proc/self/fdinfo/{session.pidfd}', encoding='ascii') as file:
            expect.holds(f'Pid:\t{stage.daemon.pid}\n' in file.read(), 'the descriptor is no pidfd of the daemon')
        expect.holds(not select.select([session.pidfd], [], [], 0)[0], 'the pidfd is readable although it runs')


def test_hello_comes_first(stage):
    """Other methods before hello, and a second hello, are refused; the session goes on"""
    session = Session(stage.daemon.path, hello=False)
    with expect.error('invalid_request'):
        session.call('status')
    with expect.error('invalid_request'):
        session.call('keys.exists', keys=['x'])
    session.call('hello', protocol=1)
    with expect.error('invalid_request'):
        session.call('hello', protocol=1)
    expect.equal(session.exists('x'), [False])


def test_version_of_the_protocol(stage):
    """A newer protocol is refused with the versions that are served; then hello may be sent again"""
    session = Session(stage.daemon.path, hello=False)
    with expect.error('invalid_params') as refused:
        session.call('hello', protocol=2)
    expect.equal((refused.raised.data.get('min'), refused.raised.data.get('max')), (1, 1), 'served versions')
    expect.equal(session.call('hello', protocol=1)['protocol'], 1)


MALFORMED = [
    (b'{', 'parse_error'),
    (b'\xff\xfe', 'parse_error'),
    (b'nonsense', 'parse_error'),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"status"}', 'parse_error'),
    (b'{"jsonrpc":"2.0","id":1,"method":"status"} x', 'parse_error'),
    (b'[]', 'invalid_request'),
    (b'[{"jsonrpc":"2.0","id":1,"method":"status"}]', 'invalid_request'),
    (b'{"jsonrpc":"2.0","method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":null,"method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":"1","method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":1.0,"method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":0,"method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":-1,"method":"status"}', 'invalid_request'),
    (b'{"jsonrpc":"2.0","id":9007199254740992,"method":"status"}', 'invalid_request'),
]
MALFORMED_WITH_ID = [
    ('{"jsonrpc":"1.0","id":%d,"method":"status"}', 'invalid_request'),
    ('{"id":%d,"method":"status"}', 'invalid_request'),
    ('{"jsonrpc":"2.0","id":%d}', 'invalid_request'),
    ('{"jsonrpc":"2.0","id":%d,"method":7}', 'invalid_request'),
    ('{"jsonrpc":"2.0","id":%d,"method":"status","params":[]}', 'invalid_request'),
    ('{"jsonrpc":"2.0","id":%d,"method":"status","extra":1}', 'invalid_request'),
    ('{"jsonrpc":"2.0","id":%d,"method":"no.such"}', 'method_not_found'),
    ('{"jsonrpc":"2.0","id":%d,"method":"regions"}', 'method_not_found'),
    ('{"jsonrpc":"2.0","id":%d,"method":"status","params":{"x":1}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"region.close","params":{}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"region.close","params":{"region":1.0}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"region.close","params":{"region":"1"}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"region.close","params":{"region":1,"force":null}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"keys.exists","params":{"keys":"x"}}', 'invalid_params'),
    ('{"jsonrpc":"2.0","id":%d,"method":"keys.exists","params":{"keys":[""]}}', 'invalid_params'),
]


def test_malformed_messages(stage):
    """Malformed messages are answered, with the id where one can be read, and the session goes on"""
    with stage.session() as session:
        for packet, name in MALFORMED:
            session.send_bytes(packet)
            expect.equal(session.wait_without_id().name, name, packet.decode('latin-1'))
        for number, (text, name) in enumerate(MALFORMED_WITH_ID, 1000):
            session.send_bytes((text % number).encode())
            expect.equal(session.outcome(number), name, text)
        expect.equal(session.exists('x'), [False])


def test_message_too_long(stage):
    """A packet of more than 64 KiB is answered too_large, and the session goes on"""
    with stage.session() as session:
        session.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"' + b'x' * 66000 + b'"}')
        expect.equal(session.wait_without_id().name, 'too_large')
        expect.equal(session.exists('x'), [False])


def test_id_in_use(stage):
    """The id of an open request cannot be used again before its answer"""
    with stage.memory(4096) as memory, stage.session() as session:
        region = session.register(memory)
        stage.valkey.process.freeze()  # so that the first answer is that of the second request
        number = session.start_set(region, 0, 10, 'key')
        session.send({'jsonrpc': '2.0', 'id': number, 'method': 'status'})
        expect.equal(session.outcome(number), 'invalid_request')
        del session.answers[number]
        stage.valkey.process.thaw()
        session.wait(number)
        session.send({'jsonrpc': '2.0', 'id': 77, 'method': 'status'})
        session.wait(77)
        del session.answers[77]
        session.send({'jsonrpc': '2.0', 'id': 77, 'method': 'status'})
        session.wait(77)


def test_flood_of_malformed_packets(stage):
    """A client that floods malformed packets is disconnected, and told so; others are not affected"""
    with stage.session() as other:
        session = stage.session()
        try:
            for _ in range(100_000):
                session.send_bytes(b'{')
                while session.receive(0):
                    pass
                if session.ended:
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        session.wait_end()
        expect.equal(session.last_packet.get('method'), 'session.closed')
        expect.equal(other.exists('x'), [False])


def test_death_frees_everything(stage):
    """A client's end gives back its descriptors, mappings and regions, also while transfers run"""
    stage.valkey.store('value', b'v' * 1000)
    with stage.session() as first:
        first.exists('x')
        stage.valkey.wait_idle()
    before = settled(stage.daemon)
    with stage.memory(MIB) as memory:
        session = stage.session()
        regions = [session.register(memory, size=4096 * (n + 1)) for n in range(20)]
        with stage.valkey.faults(test_delay_before_reply_ms=2000):
            for number, region in enumerate(regions[1:5]):
                session.start_get(region, number * 1000, 1000, 'value')
            wait.until(lambda: stage.valkey.info('transfers') > 0, 'a transfer runs')
            session.close()
            wait.until(lambda: stage.daemon.holds_nothing_of(memory.name), 'the memory is given up')
        wait.until(lambda: stage.daemon.fd_count() <= before + CARRIER_FDS,
                   lambda: f'descriptors are given back: {stage.daemon.fds()}')
    expect.equal(stage.session().call('status')['memory']['pinned_bytes'], 0, 'pinned_bytes')


CARRIER_FDS = 80  # a pool of Valkey connections with their lanes, which stay
LOOKS = 25  # in a row that must agree: workers close descriptors when they get their turn


def settled(daemon):
    """Number of descriptors once it no longer changes."""
    seen = []

    def same():
        seen.append(daemon.fd_count())
        return len(seen) > LOOKS and len(set(seen[-LOOKS:])) == 1

    wait.until(same, 'number of descriptors settles', pause=0.02)
    return seen[-1]


def test_nothing_leaks(stage):
    """200 times: a session, a region, a transfer, close; descriptors, mappings and threads stay as many"""
    def cycle(number):
        with stage.memory(64 * 1024) as memory:
            session = stage.session()
            region = session.register(memory)
            session.set(region, 0, 1000, 'key')
            if number % 2:
                expect.equal(session.call('region.close', region=region)['memory_released'], True)
            session.close()

    def counts():
        with open(f'/proc/{stage.daemon.pid}/maps', encoding='utf-8') as file:
            shared = sum('/memfd:' in line for line in file)
        return settled(stage.daemon), shared, len(os.listdir(f'/proc/{stage.daemon.pid}/task'))

    for number in range(20):
        cycle(number)
    before = counts()
    for number in range(200):
        cycle(number)
    # Fewer: what a worker had yet to close was counted before.
    wait.until(lambda: all(now <= then for now, then in zip(counts(), before)),
               lambda: f'{counts()}, before {before} (descriptors, mappings of memory files, threads)')


def test_region_cycles_in_one_session(stage):
    """1000 times register and close in one session: numbers are never used again, nothing is left"""
    with stage.session() as session, stage.memory(64 * 1024) as memory:
        numbers = set()
        before = settled(stage.daemon)
        for _ in range(1000):
            region = session.register(memory)
            session.call('region.close', region=region)
            numbers.add(region)
        expect.equal(len(numbers), 1000, 'different numbers')
        expect.holds(stage.daemon.holds_nothing_of(memory.name), 'the memory is still held')
        wait.until(lambda: settled(stage.daemon) <= before,
                   lambda: f'{before} descriptors, then {stage.daemon.fd_count()}')


def test_region_cycles_of_the_library(stage):
    """1000 times create and close with the library: neither side keeps a descriptor or a mapping"""
    def mine():
        with open('/proc/self/maps', encoding='utf-8', errors='replace') as file:
            return len(os.listdir('/proc/self/fd')), sum('memfd:' in line for line in file)

    with grd.Client(stage.daemon.path) as client:
        client.create(4096).close()
        before, theirs = mine(), settled(stage.daemon)
        for _ in range(1000):
            client.create(4096).close()
        expect.equal(mine(), before, '(descriptors, mappings) of the client')
        wait.until(lambda: settled(stage.daemon) <= theirs,
                   lambda: f'{theirs} descriptors, then {stage.daemon.fd_count()}')


def test_no_fork(stage):
    """The daemon has no child, and never had one: libfabric and registered memory do not survive fork()"""
    with stage.session() as session, stage.memory(4096) as memory:
        session.set(session.register(memory), 0, 100, 'key')
    with open(f'/proc/{stage.daemon.pid}/stat', encoding='ascii') as file:
        words = file.read().rpartition(')')[2].split()
    faults_of_children = int(words[8]) + int(words[10])  # cminflt, cmajflt: no process lives without a page fault
    expect.equal(faults_of_children, 0, 'page faults of children that have ended')
    children = ''
    for task in os.listdir(f'/proc/{stage.daemon.pid}/task'):
        with open(f'/proc/{stage.daemon.pid}/task/{task}/children', encoding='ascii') as file:
            children += file.read()
    expect.equal(children, '', 'children')


def test_close_while_busy(stage):
    """region.close while a transfer runs is refused; by force it cancels the transfer and answers after it"""
    stage.valkey.store('value', b'v' * 1000)
    with stage.memory(MIB) as memory, stage.session() as session:
        region = session.register(memory)
        with stage.valkey.faults(test_never_answer='yes'):
            number = session.start_get(region, 0, 1000, 'value')
            wait.until(lambda: stage.valkey.info('transfers') > 0, 'the transfer runs')
            with expect.error('busy'):
                session.call('region.close', region=region)
            close = session.request('region.close', region=region, force=True)
            expect.equal(session.wait(close)['memory_released'], True)
            order = list(session.answers)
            expect.equal(session.outcome(number), 'cancelled')
            expect.holds(order.index(number) < order.index(close), f'answers came in the order {order}')
        with expect.error('no_region'):
            session.get(region, 0, 10, 'value')


def test_mapping_is_kept_out_of_core_files(stage):
    """The daemon's mapping of client memory is neither dumped nor inherited"""
    with stage.memory(MIB) as memory, stage.session() as session:
        session.register(memory)
        flags = stage.daemon.mapping_flags(memory.name)
        expect.holds(flags, 'no mapping found')
        for each in flags:
            expect.holds('dd' in each and 'dc' in each, f'VmFlags are {each}, wanted dd (dontdump) and dc (dontfork)')


def test_sessions_limit(stage):
    """More sessions of one user than allowed: the next is told why and closed; after one ends it works"""
    daemon = stage.other_daemon(config={'limits.sessions_per_user': 3})
    sessions = [stage.session(daemon) for _ in range(3)]
    refused = Session(daemon.path, hello=False)
    refused.wait_end()
    expect.holds('sessions_per_user' in json.dumps(refused.last_packet), refused.last_packet)
    sessions.pop().close()

    def admitted():
        session = Session(daemon.path, hello=False)
        try:
            session.call('hello', protocol=1)
            return True
        except (AssertionError, BrokenPipeError, ConnectionResetError):
            return False

    wait.until(admitted, 'a session is admitted again')


tap.run(globals(), Stage())
