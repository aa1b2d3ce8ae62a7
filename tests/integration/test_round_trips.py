"""Values of every size come back byte for byte, and nothing around their window changes."""
from lib import crc, expect, grd, tap
from lib.memory import MIB, noise, same, write_noise
from lib.stage import Stage

GUARD = 4096 + 17  # bytes before and after each window; no window is aligned
MARK = 0xEE


def round_trip(stage, size, key, session=None):
    """set from one window, look at the server, get into another window."""
    server = stage.valkey
    total = 3 * GUARD + 2 * size
    source, target = GUARD, 2 * GUARD + size
    with stage.memory(total, fill=MARK) as memory:
        own = session or stage.session()
        region = own.register(memory)
        write_noise(memory, source, size, seed=size)
        written = grd.checksum_at(memory.address + source, size)

        expect.equal(own.set(region, source, size, key)['path'], 'rdma')
        expect.equal(server.call('BLOB.INFO', key, 'LEN'), size, 'length at the server')
        expect.equal(server.crc(key), written, 'checksum at the server')
        if size <= 64 * MIB:
            expect.same_bytes(server.value(key), memory[source:source + size], 'value at the server')

        got = own.get(region, target, size, key)
        expect.equal((got['found'], got['length'], got['crc32c'], got['path']), (True, size, written, 'rdma'))
        expect.holds(same(memory, source, memory, target, size), 'the value came back with other bytes')
        expect.holds(memory.holds(MARK, 0, GUARD), 'bytes before the source changed')
        expect.holds(memory.holds(MARK, source + size, target), 'bytes between the windows changed')
        expect.holds(memory.holds(MARK, target + size), 'bytes after the target changed')
        own.call('region.close', region=region)
        if session is None:
            own.close()
    server.call('DEL', key)


def test_one_byte(stage):
    """1 byte"""
    round_trip(stage, 1, 'one')


def test_4095(stage):
    """4095 bytes"""
    round_trip(stage, 4095, 'below a page')


def test_4096(stage):
    """4096 bytes"""
    round_trip(stage, 4096, 'a page')


def test_4097(stage):
    """4097 bytes"""
    round_trip(stage, 4097, 'above a page')


def test_mib_and_one(stage):
    """1 MiB and 1 byte"""
    round_trip(stage, MIB + 1, 'mib')


def test_64_mib(stage):
    """64 MiB"""
    round_trip(stage, 64 * MIB, 'large')


def test_512_mib(stage):
    """512 MiB, the largest value"""
    round_trip(stage, 512 * MIB, 'largest')


def test_checksum_of_another_implementation(stage):
    """The checksum is CRC-32C of the bytes, as an implementation of its own computes it"""
    expect.equal(crc.crc32c(b'123456789'), 0xE3069283)
    with stage.memory(4096) as memory, stage.session() as session:
        data = noise(4000, seed=9)
        memory[:len(data)] = data
        region = session.register(memory)
        session.set(region, 0, len(data), 'crc', crc32c=crc.crc32c(data))
        expect.equal(session.get(region, 0, 4096, 'crc')['crc32c'], crc.crc32c(data))


def test_value_smaller_than_the_window(stage):
    """A value smaller than the window leaves the rest of the window as it was"""
    stage.valkey.store('small', b'x' * 1000)
    with stage.memory(8192, fill=MARK) as memory, stage.session() as session:
        region = session.register(memory)
        expect.equal(session.get(region, 100, 8000, 'small')['length'], 1000)
        expect.holds(memory.holds(MARK, 0, 100), 'bytes before the window changed')
        expect.equal(memory[100:1100], b'x' * 1000)
        expect.holds(memory.holds(MARK, 1100), 'bytes after the value changed')


def test_value_stored_over_the_connection(stage):
    """A value that another client stored with BLOB.TCP_SET"""
    data = noise(300_001, seed=3)
    stage.valkey.store('theirs', data)
    with stage.memory(300_001) as memory, stage.session() as session:
        session.get(session.register(memory), 0, len(data), 'theirs')
        expect.same_bytes(memory[:], data, 'value')


def test_overwriting(stage):
    """A set replaces the value that the key held"""
    with stage.memory(8192) as memory, stage.session() as session:
        region = session.register(memory)
        memory[:8192] = b'a' * 4096 + b'b' * 4096
        session.set(region, 0, 4096, 'again')
        session.set(region, 4096, 100, 'again')
        expect.equal(stage.valkey.value('again'), b'b' * 100)


def keys():
    yield b'\0'
    yield b'a\0b\r\n c'
    yield bytes(range(256))
    yield 'schlüssel 键'.encode()
    yield b'\xff' * 16384
    yield b'k' * 16384


def test_binary_keys(stage):
    """Keys are any bytes, up to 16 KiB"""
    with stage.memory(4096) as memory, stage.session() as session:
        region = session.register(memory)
        for number, key in enumerate(keys()):
            value = b'value %d' % number
            memory[:len(value)] = value
            session.set(region, 0, len(value), key)
            expect.equal(stage.valkey.value(key), value, f'key {key[:20]!r}')
            memory.fill(0)
            expect.equal(session.get(region, 0, 100, key)['length'], len(value))
            expect.equal(memory[:len(value)], value)


def test_key_too_long(stage):
    """A key of more than 16 KiB is refused and the limit is named"""
    with stage.memory(4096) as memory, stage.session() as session:
        region = session.register(memory)
        with expect.error('too_large') as refused:
            session.set(region, 0, 10, b'k' * 16385)
        expect.holds('16384' in refused.raised.message, refused.raised)


def test_unix_socket_connection(stage):
    """The same through a Valkey connection over a Unix socket"""
    # The fabric's address cannot follow from such a connection, so it is configured.
    daemon = stage.other_daemon(address=f'unix:{stage.valkey.unix_path}', config={'fabric.bind': '127.0.0.1'})
    with stage.session(daemon) as session:
        for size in (1, 4097, MIB + 1):
            round_trip(stage, size, f'unix {size}', session)


def test_warm_start(stage):
    """The same with connections and lanes made at start"""
    daemon = stage.other_daemon(config={'valkey.warm': 'yes', 'valkey.connections': 3})
    with stage.session(daemon) as session:
        for _ in range(6):
            round_trip(stage, 10_000, 'warm', session)


def test_several_endpoints_and_small_chunks(stage):
    """A value moved in small chunks, in any order, by several endpoints of the server"""
    server = stage.other_valkey(module_options={'fabric-interfaces': '127.0.0.1,127.0.0.1', 'chunk-size': 4096,
                                                'test-shuffle': 'yes'})
    daemon = stage.other_daemon(server)
    size = MIB + 1
    with stage.memory(2 * size, fill=0) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        write_noise(memory, 0, size, seed=5)
        session.set(region, 0, size, 'chunks', crc32c=grd.checksum_at(memory.address, size))
        session.get(region, size, size, 'chunks')
        expect.holds(same(memory, 0, memory, size, size), 'the value came back with other bytes')
    for endpoint in range(2):
        expect.holds(server.info(f'endpoint{endpoint}_operations') > 0, f'endpoint {endpoint} moved nothing')


tap.run(globals(), Stage())
