"""Commands over RDMA as well: values arrive byte for byte, and the connection to the server is none over TCP."""
from lib import expect, grd
from lib.memory import MIB, same, write_noise

import rxe
from rdma_server import RespOverRdma

MARK = 0xEE
GUARD = 4096 + 17  # bytes before and after each window; no window is aligned
KIB64 = 65536      # the daemon's window of a connection
SIZES = [1, 4097, KIB64, MIB + 1, 64 * MIB]
# The server's own window, the smallest that it takes, its default, the largest, and values that fill it.
SERVER_WINDOWS = {KIB64: [1, KIB64, MIB + 1], MIB: [1, MIB, 3 * MIB + 1], 16 * MIB: [1, 17 * MIB + 1]}


def round_trip(stage, session, server, size, path):
    source, target = GUARD, 2 * GUARD + size
    with stage.memory(3 * GUARD + 2 * size, fill=MARK) as memory:
        region = session.register(memory)
        write_noise(memory, source, size, seed=size)
        written = grd.checksum_at(memory.address + source, size)
        number = session.start_set(region, source, size, 'value')
        expect.equal(session.wait(number, 200)['path'], path)
        expect.equal(server.crc('value'), written, 'checksum at the server')
        got = session.wait(session.start_get(region, target, size, 'value'), 200)
        expect.equal((got['found'], got['length'], got['crc32c'], got['path']), (True, size, written, path))
        expect.holds(same(memory, source, memory, target, size), 'the value came back with other bytes')
        expect.holds(memory.holds(MARK, 0, GUARD), 'bytes before the source changed')
        expect.holds(memory.holds(MARK, source + size, target), 'bytes between the windows changed')
        expect.holds(memory.holds(MARK, target + size), 'bytes after the target changed')
        session.call('region.close', region=region)


def test_values(stage):
    """From 1 byte to 64 MiB, by the fabric"""
    with stage.session() as session:
        for size in SIZES:
            round_trip(stage, session, stage.valkey, size, 'rdma')
        nodes = session.call('status')['nodes']
        expect.equal([(node['transport'], node['state']) for node in nodes], [('rdma', 'up')])
    expect.holds(len(stage.valkey.clients_over_rdma()) >= 2, 'the daemon is not connected over RDMA')


def test_keys(stage):
    """keys.exists, keys.info and keys.delete, also of many keys with long names"""
    names = [f'{n:04}' + 'x' * 200 for n in range(200)]
    with stage.memory(8192, fill=7) as memory, stage.session() as session:
        region = session.register(memory)
        session.set(region, 0, 5000, 'there')
        expect.equal(session.exists('there', 'absent'), [True, False])
        expect.equal(session.keys('keys.info', 'there')[0]['length'], 5000)
        session.set(region, 0, 1, names[0])
        expect.equal(session.exists(*names), [True] + [False] * 199)
        expect.equal(session.delete('there', 'absent'), [True, False])
        expect.equal(session.exists('there'), [False])


def test_many_at_once(stage):
    """Hundreds of requests under way at once are answered, each by its own answer"""
    with stage.session() as session:
        for n in range(50):
            stage.valkey.call('SET', f'k{2 * n}', 'x')
        numbers = [session.request('keys.exists', keys=[f'k{n % 100}']) for n in range(400)]
        for n, number in enumerate(numbers):
            expect.equal(session.wait(number, 120)['keys'][0]['exists'], n % 2 == 0)


def test_values_over_the_connection(stage):
    """Without a fabric and with fallback = tcp values move over the RDMA connection, for each window of the server"""
    for window, sizes in SERVER_WINDOWS.items():
        server = stage.other_valkey(options={'rdma-rx-size': window},
                                    module_options={'fabric-provider': 'verbs', 'fabric-interfaces': '10.78.9.9'})
        daemon = stage.other_daemon(server, config={'valkey.fallback': 'tcp'})
        with stage.session(daemon) as session:
            for size in sizes:
                round_trip(stage, session, server, size, 'tcp')
        stage.end(daemon)
        stage.end(server)


rxe.run(globals(), RespOverRdma())
