"""Checksums: given with a set, and compared after a get."""
from lib import expect, grd, tap
from lib.memory import noise
from lib.stage import Stage

DATA = noise(200_000, seed=4)


def test_known_checksum(stage):
    """set with the right checksum stores the value"""
    with stage.memory(len(DATA)) as memory, stage.session() as session:
        memory[:] = DATA
        session.set(session.register(memory), 0, len(DATA), 'good', crc32c=grd.checksum(DATA))
    expect.same_bytes(stage.valkey.value('good'), DATA, 'value')


def test_wrong_checksum(stage):
    """set with a wrong checksum stores nothing, and an older value stays"""
    stage.valkey.store('kept', b'older')
    with stage.memory(len(DATA)) as memory, stage.session() as session:
        region = session.register(memory)
        for key in ('kept', 'new'):
            with expect.error('checksum_mismatch'):
                session.set(region, 0, len(DATA), key, crc32c=grd.checksum(DATA) ^ 1)
        expect.equal(session.exists('new'), [False])
    expect.equal(stage.valkey.value('kept'), b'older')


def test_library_checks_a_get(stage):
    """The library refuses a value whose checksum differs from the server's, unless told not to check"""
    stage.valkey.store('value', DATA)
    with grd.Client(stage.daemon.path) as client:
        region = client.create(len(DATA))
        receipt = region.get(b'value')
        expect.equal((receipt.verified, receipt.crc32c), (True, grd.checksum(DATA)))
        with stage.valkey.faults(test_wrong_crc='yes'):
            with expect.error('checksum_mismatch'):
                region.get(b'value')
            receipt = region.get(b'value', no_verify=True)
            expect.equal((receipt.found, receipt.verified), (True, False))
        expect.equal(region.get(b'value').verified, True)
        region.close()


def test_daemon_passes_the_servers_checksum(stage):
    """The daemon looks at no byte: it passes on the checksum that the server states"""
    stage.valkey.store('value', DATA)
    with stage.memory(len(DATA)) as memory, stage.session() as session:
        region = session.register(memory)
        with stage.valkey.faults(test_wrong_crc='yes'):
            expect.equal(session.get(region, 0, len(DATA), 'value')['crc32c'], grd.checksum(DATA) ^ 1)


def test_library_sets(stage):
    """The library sends no checksum, computes one, or sends the caller's"""
    with grd.Client(stage.daemon.path) as client:
        region = client.create(len(DATA))
        region.write(0, DATA)
        whole = {'offset': 0, 'length': len(DATA)}
        expect.equal(region.set(b'a', **whole).has_crc32c, False)
        receipt = region.set(b'b', **whole, checksum=grd.CHECKSUM_COMPUTE)
        expect.equal((receipt.verified, receipt.crc32c), (True, grd.checksum(DATA)))
        region.set(b'c', **whole, checksum=grd.CHECKSUM_KNOWN, crc32c=grd.checksum(DATA))
        with expect.error('checksum_mismatch'):
            region.set(b'd', **whole, checksum=grd.CHECKSUM_KNOWN, crc32c=1)
        expect.equal(client.exists(b'a', b'b', b'c', b'd'), [True, True, True, False])
        for key in ('a', 'b', 'c'):
            expect.same_bytes(stage.valkey.value(key), DATA, key)
        region.close()


tap.run(globals(), Stage())
