"""[valkey] fallback = tcp: values move over the connection to Valkey where there is no RDMA, byte for byte, and every
answer says so."""
from lib import crc, expect, tap, wait
from lib.certificates import Authority
from lib.cluster import Cluster
from lib.daemon import Daemon
from lib.memory import MIB, PAGE, noise, write_noise
from lib.ports import free_port
from lib.scripted_server import Answer, ScriptedServer
from lib.session import Session
from lib.stage import Stage

SIZES = (1, 100, PAGE, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, MIB + 3, 64 * MIB)
GUARD = PAGE + 17
MARK = 0xEE
NO_FABRIC = {'fabric-interfaces': 'no-such-interface'}
OWN_FABRIC_MISSING = {'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'}


def with_fallback(stage, **arguments):
    config = {'valkey.fallback': 'tcp', **arguments.pop('config', {})}
    return stage.other_daemon(config=config, **arguments)


def node(session):
    return session.call('status')['nodes'][0]


def round_trip(stage, session, server, size, key):
    with stage.memory(3 * GUARD + 2 * size, fill=MARK) as memory:
        source, target = GUARD, 2 * GUARD + size
        region = session.register(memory)
        write_noise(memory, source, size, seed=size)
        data = memory[source:source + size]
        checksum = crc.crc32c(data) if size <= MIB else None
        expect.equal(session.set(region, source, size, key, **({'crc32c': checksum} if checksum else {})),
                     {'path': 'tcp'}, f'set of {size}')
        expect.same_bytes(server.value(key), data, f'{size} bytes at the server')
        got = session.get(region, target, size, key)
        expect.equal(got, {'found': True, 'length': size, 'path': 'tcp', 'crc32c': server.crc(key)}, f'get of {size}')
        expect.same_bytes(memory[target:target + size], data, f'{size} bytes come back')
        for start, end in ((0, source), (source + size, target), (target + size, memory.size)):
            expect.holds(memory.holds(MARK, start, end), f'bytes around a window of {size} changed')
        session.call('region.close', region=region)


def test_server_without_fabric(stage):
    """Values of 1 byte to 64 MiB both ways; hello, status and the log say that they move over TCP, and why"""
    daemon = with_fallback(stage)
    with stage.session(daemon) as session:
        for number, size in enumerate(SIZES):
            round_trip(stage, session, stage.valkey, size, f'size {number}')
        told = node(session)
        expect.equal(told['path'], 'tcp')
        expect.holds('the server has no fabric' in told['path_why'], told)
        expect.equal(told['session_why'], '')
    with stage.session(daemon) as session:
        hello = session.hello
        expect.equal((hello['usable'], hello['path']), (True, 'tcp'))
        expect.holds('the server has no fabric' in hello['why'], hello)
    lines = [line for line in daemon.process.log().splitlines() if 'values move over TCP' in line]
    expect.equal(len(lines), 1, 'lines of the log about the switch')


def test_own_fabric_missing(stage):
    """A host without fabric: regions can be registered, values move over TCP, hello says why from the start"""
    daemon = with_fallback(stage, environment=OWN_FABRIC_MISSING)
    with stage.session(daemon) as session:
        wait.until(lambda: session.call('status')['daemon']['usable'], 'the server is up')
        round_trip(stage, session, stage.valkey, MIB + 1, 'no fabric')
        expect.equal(session.call('status')['memory']['pinned_bytes'], 0, 'charged after the regions were closed')
    with stage.session(daemon) as session:
        expect.equal((session.hello['usable'], session.hello['path']), (True, 'tcp'))
        expect.holds('/nonexistent' in session.hello['why'], session.hello)


def test_warm(stage):
    """warm = yes: the connections over TCP are made at the start, with and without a fabric of this host"""
    for environment in ({}, OWN_FABRIC_MISSING):
        daemon = with_fallback(stage, config={'valkey.warm': 'yes'}, environment=environment)
        with stage.session(daemon) as session:
            wait.until(lambda: node(session)['carriers'] == 8, 'the connections are there')
            expect.equal(node(session)['path'], 'tcp')
            wait.until(lambda: session.call('status')['fabric']['lanes'] == 0, 'lanes that were tried are gone')


def test_unix_socket(stage):
    """Over a Unix socket"""
    daemon = with_fallback(stage, address=f'unix:{stage.valkey.unix_path}')
    with stage.session(daemon) as session:
        for size in (1, MIB + 3, 16 * MIB):
            round_trip(stage, session, stage.valkey, size, 'unix')


def test_tls(stage):
    """Over TLS"""
    authority = Authority(stage.new_folder())
    certificate = authority.issue('server')
    port = free_port()
    server = stage.other_valkey(module_options=NO_FABRIC, options={
        'tls-port': port, 'tls-cert-file': certificate.path, 'tls-key-file': certificate.key,
        'tls-ca-cert-file': authority.path, 'tls-auth-clients': 'no'})
    daemon = with_fallback(stage, address=f'127.0.0.1:{port}',
                           config={'valkey.tls': 'yes', 'valkey.tls_ca': authority.path})
    with stage.session(daemon) as session:
        for size in (1, 16384, MIB + 3, 16 * MIB):
            round_trip(stage, session, server, size, 'tls')
        expect.equal(node(session)['transport'], 'tls')


def test_not_configured(stage):
    """fallback = none, the default: transfers are refused with the reason, and nothing is stored"""
    for config in ({}, {'valkey.fallback': 'none'}):
        daemon = stage.other_daemon(config=config)
        with stage.memory(PAGE) as memory, stage.session(daemon) as session:
            region = session.register(memory)
            for start in (session.start_set, session.start_get):
                with expect.error('not_usable') as refused:
                    session.wait(start(region, 0, 100, 'not configured'))
                expect.holds('RDMA provider unavailable' in refused.raised.message, refused.raised)
            expect.equal(stage.valkey.call('EXISTS', 'not configured'), 0)
            expect.equal((node(session)['path'], node(session)['path_why']), ('rdma', ''))
        stage.end(daemon)
    daemon = stage.other_daemon(environment=OWN_FABRIC_MISSING)
    with stage.memory(PAGE) as memory, stage.session(daemon) as session:
        with expect.error('not_usable'):
            session.register(memory)


def test_other_reasons(stage):
    """What is wrong with RDMA for another reason leads to no fallback"""
    server = stage.other_valkey()
    daemon = with_fallback(stage, valkey=server)
    with stage.memory(PAGE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        server.set(test_refuse_hello=1000)
        with expect.error('not_usable'):
            session.set(region, 0, 100, 'key')
        server.set(test_refuse_hello=0)
        session.wait_until_sets_work(region)
        expect.equal(session.set(region, 0, 100, 'key')['path'], 'rdma')


def test_answers(stage):
    """A key that is missing, a key of another type, a window that is too small for small and large values"""
    server = stage.valkey
    with stage.memory(4 * MIB, fill=MARK) as memory, stage.session(with_fallback(stage)) as session:
        region = session.register(memory)
        expect.equal(session.get(region, 0, 100, 'nothing here'), {'found': False, 'length': 0})
        server.call('SET', 'text', 'x')
        for start in (session.start_get, session.start_set):
            with expect.error('wrong_type'):
                session.wait(start(region, 0, 100, 'text'))
        for size in (101, MIB, 3 * MIB):
            server.store('large', noise(size))
            with expect.error('need_larger_window') as refused:
                session.get(region, 0, 100, 'large')
            expect.equal(refused.raised.data['need'], size)
        expect.holds(memory.holds(MARK), 'a refused get has written')
        expect.equal(session.get(region, 0, 3 * MIB, 'large')['length'], 3 * MIB)
        expect.same_bytes(memory[0:3 * MIB], noise(3 * MIB), 'value')


def test_ttl_and_checksums(stage):
    """ttl_ms is applied; a checksum that differs is told, with may_have_run, since the value is stored"""
    server = stage.valkey
    with stage.memory(MIB) as memory, stage.session(with_fallback(stage)) as session:
        region = session.register(memory)
        expect.equal(session.set(region, 0, MIB, 'ttl', ttl_ms=100_000, crc32c=crc.crc32c(memory[0:MIB])),
                     {'path': 'tcp', 'ttl_applied': True})
        expect.holds(0 < server.call('PTTL', 'ttl') <= 100_000, 'time to live')
        with expect.error('checksum_mismatch') as refused:
            session.set(region, 0, MIB, 'other', crc32c=1)
        expect.equal(refused.raised.data['may_have_run'], True)
        expect.equal(server.call('EXISTS', 'other'), 1)


def test_too_large(stage):
    """A value over proto-max-bulk-len is too_large, and the daemon goes on"""
    server = stage.valkey
    server.call('CONFIG', 'SET', 'proto-max-bulk-len', MIB)
    with stage.memory(2 * MIB) as memory, stage.session(with_fallback(stage)) as session:
        region = session.register(memory)
        with expect.error('too_large') as refused:
            session.set(region, 0, 2 * MIB, 'over')
        expect.equal(refused.raised.data['may_have_run'], False)
        expect.equal(session.set(region, 0, MIB, 'just right')['path'], 'tcp')
    server.call('CONFIG', 'SET', 'proto-max-bulk-len', 512 * MIB)


def test_across_paths(stage):
    """What was stored by RDMA is read over TCP, and the reverse; the path follows the server when it gets a fabric"""
    server = stage.other_valkey()
    daemon = with_fallback(stage, valkey=server)
    over_tcp = with_fallback(stage, valkey=server, environment=OWN_FABRIC_MISSING)
    with stage.memory(2 * MIB) as memory, stage.session(daemon) as session, stage.session(over_tcp) as other:
        regions = {session: session.register(memory), other: other.register(memory)}
        wait.until(lambda: other.call('status')['daemon']['usable'], 'the server is up')
        for number, (writer, reader, paths) in enumerate(((session, other, ('rdma', 'tcp')),
                                                          (other, session, ('tcp', 'rdma')))):
            data = noise(MIB, seed=number + 1)
            memory[0:MIB] = data
            expect.equal(writer.set(regions[writer], 0, MIB, 'both')['path'], paths[0])
            got = reader.get(regions[reader], MIB, MIB, 'both')
            expect.equal((got['path'], got['crc32c']), (paths[1], crc.crc32c(data)))
            expect.same_bytes(memory[MIB:2 * MIB], data, 'value')
        for fabric, path in (('no-such-interface', 'tcp'), ('lo', 'rdma'), ('no-such-interface', 'tcp')):
            server.module_options['fabric-interfaces'] = fabric
            server.restart()
            session.wait_until_sets_work(regions[session])
            wait.until(lambda: session.set(regions[session], 0, 100, 'key')['path'] == path, f'the path is {path}')
            expect.equal(node(session)['path'], path)
    expect.holds('values move by RDMA again' in daemon.process.log(), 'the return to RDMA is not in the log')


def test_one_node_of_a_cluster(stage):
    """A cluster of which one node has no fabric: its values move over TCP, the others' by RDMA"""
    cluster = Cluster(stage.new_folder(), primaries=2)
    lame = cluster.primaries[1]
    try:
        lame.module_options = NO_FABRIC
        lame.restart()
        cluster.wait_settled()
        daemon = Daemon(stage.new_folder(), None, config={'valkey.seeds': cluster.seeds, 'valkey.fallback': 'tcp'})
        with stage.memory(PAGE, fill=7) as memory, stage.session(daemon) as session:
            region = session.register(memory)
            for number in range(12):
                path = 'tcp' if cluster.owner(f'key {number}') is lame else 'rdma'
                expect.equal(session.set(region, 0, PAGE, f'key {number}')['path'], path)
                expect.equal(session.get(region, 0, PAGE, f'key {number}')['path'], path)
            expect.equal({told['address']: told['path'] for told in session.call('status')['nodes']},
                         {node.address: 'tcp' if node is lame else 'rdma' for node in cluster.primaries})
        with stage.session(daemon) as session:
            expect.equal(session.hello['path'], 'mixed')
            expect.holds(lame.address in session.hello['why'], session.hello['why'])
        expect.equal(daemon.stop(), 0)
    finally:
        cluster.stop()


def test_slot_on_its_way(stage):
    """A slot that moves between two servers without a fabric: what the source answers ASK for goes to the target over
    TCP, value, checksum and time to live; when the slot has moved, MOVED is followed"""
    cluster = Cluster(stage.new_folder(), primaries=2, module_options=NO_FABRIC)
    try:
        source, target = cluster.primaries
        tag = cluster.key_of(source, 'tag')
        old, new = f'{{{tag}}}old', f'{{{tag}}}new'
        daemon = Daemon(stage.new_folder(), None, config={'valkey.seeds': cluster.seeds, 'valkey.fallback': 'tcp'})
        with stage.session(daemon) as session, stage.memory(2 * MIB) as memory:
            round_trip(stage, session, source, 1000, old)
            slot, _ = cluster.migrate(tag, target)
            region = session.register(memory)
            for size in (100, MIB):
                write_noise(memory, 0, size, seed=size)
                checksum = crc.crc32c(memory[0:size])
                expect.equal(session.set(region, 0, size, new, crc32c=checksum, ttl_ms=600_000),
                             {'path': 'tcp', 'ttl_applied': True}, f'set of {size}')
                expect.equal(session.get(region, MIB, MIB, new),
                             {'found': True, 'length': size, 'path': 'tcp', 'crc32c': checksum}, f'get of {size}')
                expect.same_bytes(memory[MIB:MIB + size], memory[0:size], f'{size} bytes come back')
            expect.equal([node.call('DBSIZE') for node in (source, target)], [1, 1])
            expect.equal(session.get(region, MIB, MIB, f'{{{tag}}}none'), {'found': False, 'length': 0})
            expect.equal(session.get(region, MIB, MIB, old)['length'], 1000)
            source.call('MIGRATE', '127.0.0.1', target.port, '', 0, 20_000, 'KEYS', old)
            cluster.finish_migration(slot, target)
            for key, size in ((old, 1000), (new, MIB)):
                expect.equal(session.get(region, MIB, MIB, key)['length'], size)
            with Session(daemon.admin_path, hello=False) as operator:
                expect.holds(operator.call('status')['transfers']['run_again'] >= 5, 'they were redirected')
        expect.equal(daemon.stop(), 0)
    finally:
        cluster.stop()


def test_fabric_comes_back(stage):
    """A server whose fabric can be used after all, on connections that stay: RDMA is tried again, by a transfer that
    waits, fallback_retry_ms after the last attempt and not before"""
    server = stage.other_valkey()
    refuses = Answer(b'-ERR RDMA provider unavailable on this instance\r\n')
    for retry_ms, path in ((600_000, 'tcp'), (300, 'rdma')):
        with ScriptedServer(server) as relay:
            daemon = with_fallback(stage, address=f'127.0.0.1:{relay.port}',
                                   config={'valkey.fallback_retry_ms': retry_ms, 'valkey.connections': 2})
            with stage.memory(PAGE) as memory, stage.session(daemon) as session:
                region = session.register(memory)
                with relay.script(BLOB_RDMA_HELLO=refuses):
                    wait.until(lambda: node(session)['state'] == 'up', 'the connection for commands is there')
                    for _ in range(5):
                        expect.equal(session.set(region, 0, PAGE, 'key')['path'], 'tcp')
                if path == 'rdma':
                    wait.until(lambda: session.set(region, 0, PAGE, 'key')['path'] == path, 'RDMA is tried again')
                for _ in range(5):
                    expect.equal(session.set(region, 0, PAGE, 'key')['path'], path)
                expect.equal((node(session)['path'], node(session)['reconnects']), (path, 0))
            said = 'values move by RDMA again' in daemon.process.log()
            expect.equal(said, path == 'rdma', 'the log tells of the return')
            stage.end(daemon)


def test_many_at_once(stage):
    """8 connections and 16 transfers at once; no value gets another's bytes"""
    size, count = 3 * MIB + 5, 16
    with stage.memory(2 * count * size) as memory, stage.session(with_fallback(stage)) as session:
        region = session.register(memory)
        for number in range(count):
            memory[number * size:(number + 1) * size] = noise(size, seed=number + 1)
        for start, first in ((session.start_set, 0), (session.start_get, count)):
            waiting = [start(region, (first + n) * size, size, f'many {n}') for n in range(count)]
            for number in waiting:
                expect.equal(session.wait(number)['path'], 'tcp')
        for number in range(count):
            at = (count + number) * size
            expect.same_bytes(memory[at:at + size], noise(size, seed=number + 1), f'value {number}')
        wait.until(lambda: node(session)['carriers'] == 8, lambda: f'8 connections: {node(session)}')


def test_memory_of_the_daemon(stage):
    """A value of 256 MiB goes both ways through a few buffers: the daemon's memory does not grow with it"""
    size = 256 * MIB

    def resident():
        with open(f'/proc/{daemon.pid}/status', encoding='ascii') as file:
            return next(int(line.split()[1]) for line in file if line.startswith('RssAnon:')) * 1024

    daemon = with_fallback(stage)
    with stage.memory(size, fill=7) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'first')
        before = resident()
        for kind in ('set', 'get'):
            number = getattr(session, f'start_{kind}')(region, 0, size, 'huge')
            most = 0
            while not session.answered(number):
                most = max(most, resident())
            session.wait(number)
            expect.holds(most - before < 8 * MIB, f'the daemon grew by {most - before} bytes during a {kind}')
        expect.holds(memory.holds(7), 'value')
        stage.valkey.call('DEL', 'huge')


tap.run(globals(), Stage(module_options=NO_FABRIC))
