"""Values go over real queue pairs between two devices, byte for byte."""
from lib import expect, grd
from lib.memory import MIB, same, write_noise

import rxe

MARK = 0xEE
GUARD = 4096 + 17  # bytes before and after each window; no window is aligned


def round_trip(stage, size):
    source, target = GUARD, 2 * GUARD + size
    with stage.memory(3 * GUARD + 2 * size, fill=MARK) as memory, stage.session() as session:
        region = session.register(memory)
        write_noise(memory, source, size, seed=size)
        written = grd.checksum_at(memory.address + source, size)
        before = rxe.packets()
        expect.equal(session.set(region, source, size, 'value')['path'], 'rdma')
        expect.equal(stage.valkey.crc('value'), written, 'checksum at the server')
        got = session.get(region, target, size, 'value')
        expect.equal((got['found'], got['length'], got['crc32c'], got['path']), (True, size, written, 'rdma'))
        expect.holds(same(memory, source, memory, target, size), 'the value came back with other bytes')
        expect.holds(memory.holds(MARK, 0, GUARD), 'bytes before the source changed')
        expect.holds(memory.holds(MARK, source + size, target), 'bytes between the windows changed')
        expect.holds(memory.holds(MARK, target + size), 'bytes after the target changed')
        rxe.expect_packets(before)
        session.call('region.close', region=region)


def test_one_byte(stage):
    """1 byte"""
    round_trip(stage, 1)


def test_4097(stage):
    """4097 bytes"""
    round_trip(stage, 4097)


def test_a_mib_and_one(stage):
    """1 MiB and 1 byte"""
    round_trip(stage, MIB + 1)


def test_16_mib(stage):
    """16 MiB, in two operations of the server"""
    round_trip(stage, 16 * MIB)


def test_keys(stage):
    """keys.exists, keys.info and keys.delete see what was stored over RDMA"""
    with stage.memory(8192, fill=7) as memory, stage.session() as session:
        session.set(session.register(memory), 0, 5000, 'there')
        expect.equal(session.exists('there', 'absent'), [True, False])
        expect.equal(session.keys('keys.info', 'there')[0]['length'], 5000)
        expect.equal(session.delete('there', 'absent'), [True, False])
        expect.equal(session.exists('there'), [False])


def test_fallback(stage):
    """With a server that has no fabric and fallback = tcp, values reach memory that is registered with the NIC"""
    server = stage.other_valkey(module_options={'fabric-provider': 'verbs', 'fabric-interfaces': '10.78.9.9'})
    daemon = stage.other_daemon(server, config={'valkey.fallback': 'tcp'})
    with stage.memory(8192, fill=7) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        expect.equal(session.set(region, 0, 4096, 'value')['path'], 'tcp')
        memory.fill(MARK)
        expect.equal(session.get(region, 0, 4096, 'value')['path'], 'tcp')
        expect.holds(memory.holds(7, 0, 4096) and memory.holds(MARK, 4096), 'the value came back with other bytes')


def test_hidden(stage):
    """The daemon's mapping of memory that is registered is PROT_NONE, while values move to and from it"""
    with stage.memory(8192, fill=7) as memory, stage.session() as session:
        region = session.register(memory)
        for move in (session.set, session.get):
            move(region, 0, 4096, 'value')
            expect.equal([line.split()[1] for line in stage.daemon.mappings(memory.name)], ['---s'])


rxe.run(globals(), rxe.Rxe())
