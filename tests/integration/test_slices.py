"""Regions that are lists of memory registrations: windows cross the boundaries."""
from lib import expect, grd, tap
from lib.memory import same, write_noise
from lib.stage import Stage

SLICE = 64 * 1024
SLICES_MAX = 256


def round_trip(stage, memory, session, region, source, target, size):
    write_noise(memory, source, size, seed=size)
    memory.fill(0xEE, target, target + size)
    written = grd.checksum_at(memory.address + source, size)
    session.set(region, source, size, 'value', crc32c=written)
    expect.equal(stage.valkey.crc('value'), written)
    expect.equal(session.get(region, target, size, 'value')['crc32c'], written)
    expect.holds(same(memory, source, memory, target, size), 'the value came back with other bytes')


def test_across_one_boundary(stage):
    """A small window across a boundary, both directions"""
    with stage.memory(8 * SLICE) as memory, stage.session() as session:
        region = session.register(memory)
        round_trip(stage, memory, session, region, SLICE - 100, 3 * SLICE - 7, 200)


def test_across_many_boundaries(stage):
    """An unaligned window across many boundaries, both directions"""
    with stage.memory(64 * SLICE) as memory, stage.session() as session:
        region = session.register(memory)
        round_trip(stage, memory, session, region, 1, 32 * SLICE - 1, 20 * SLICE + 33)


def test_exactly_one_slice(stage):
    """Windows that end and begin exactly at a boundary"""
    with stage.memory(8 * SLICE) as memory, stage.session() as session:
        region = session.register(memory)
        round_trip(stage, memory, session, region, SLICE, 4 * SLICE, SLICE)


def test_last_slice_is_shorter(stage):
    """A window that ends with the region, in a slice shorter than the others"""
    with stage.memory(4 * SLICE + 12288) as memory, stage.session() as session:
        region = session.register(memory)
        round_trip(stage, memory, session, region, 5, 3 * SLICE, SLICE + 12288)


def test_region_inside_the_file(stage):
    """A region that begins inside its file"""
    with stage.memory(8 * SLICE, fill=0x11) as memory, stage.session() as session:
        region = session.register(memory, offset=3 * 4096)
        stage.valkey.store('shifted', b'abc')
        session.get(region, SLICE - 1, 10, 'shifted')
        at = 3 * 4096 + SLICE - 1
        expect.equal(memory[at - 1:at + 4], b'\x11abc\x11')


def test_most_slices(stage):
    """A window over 256 slices passes"""
    size = SLICES_MAX * SLICE
    with stage.memory(2 * size) as memory, stage.session() as session:
        region = session.register(memory)
        round_trip(stage, memory, session, region, 0, size, size)


def test_too_many_slices(stage):
    """A window over 257 slices is refused, and the limit is named"""
    with stage.memory(300 * SLICE) as memory, stage.session() as session:
        region = session.register(memory)
        for start in (session.start_set, session.start_get):
            with expect.error('over_limit') as refused:
                session.wait(start(region, SLICE - 1, 255 * SLICE + 2, 'value'))
            expect.holds('256' in refused.raised.message, refused.raised)


tap.run(globals(), Stage(daemon_config={'fabric.mr_max_bytes': '64K'}))
