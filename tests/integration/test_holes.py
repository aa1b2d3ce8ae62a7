"""Holes punched into registered memory during transfers hurt nobody but their owner."""
import random
import threading

from lib import expect, grd, tap
from lib.memory import MIB, PAGE
from lib.session import RpcError
from lib.stage import Stage

SIZE = 16 * MIB
HOLE = 64 * 1024
ROUNDS = 25
VALUE, OLD = 0x5A, 0x21


class Puncher:
    """Punches holes at random places of a window, as fast as it can, for the time of a with block."""

    def __init__(self, memory, start, length):
        self.memory, self.start, self.length = memory, start, length
        self.random = random.Random(1)
        self.punched = 0
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._punch, daemon=True)

    def _punch(self):
        while not self.ending.is_set():
            at = self.random.randrange(0, self.length - HOLE, PAGE)
            assert self.memory.punch(self.start + at, HOLE) == 0
            self.punched += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()
        expect.holds(self.punched > ROUNDS, 'hardly a hole was punched')


def check_bytes(data, *allowed):
    others = len(data) - sum(data.count(byte) for byte in allowed)
    expect.equal(others, 0, f'bytes that are none of {allowed}')


def test_get(stage):
    """get: an error or the value; the window holds bytes of the value, old ones and zeros, never others"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    with stage.memory(SIZE + 2 * PAGE, fill=OLD) as memory, stage.session() as session:
        region = session.register(memory)
        with Puncher(memory, PAGE, SIZE):
            for _ in range(ROUNDS):
                try:
                    expect.equal(session.get(region, PAGE, SIZE, 'value')['length'], SIZE)
                except RpcError as error:
                    expect.holds(error.name in ('server_error', 'lost'), error)
        check_bytes(memory[PAGE:PAGE + SIZE], VALUE, OLD, 0)
        expect.holds(memory.holds(OLD, 0, PAGE) and memory.holds(OLD, PAGE + SIZE), 'bytes around the window changed')
        session.get(region, PAGE, SIZE, 'value')
        expect.holds(memory.holds(VALUE, PAGE, PAGE + SIZE), 'the region does not work any more')
    expect.holds(stage.daemon.alive(), 'the daemon ended')


def test_verified_get(stage):
    """get through the library: the checksum error where a hole took bytes away, or the value"""
    data = bytes([VALUE]) * SIZE
    stage.valkey.store('value', data)
    outcomes = set()
    with stage.memory(SIZE) as memory, grd.Client(stage.daemon.path) as client:
        region = client.register(memory.fd)
        with Puncher(memory, 0, SIZE):
            for number in range(20 * ROUNDS):  # at least so many; and until a hole was noticed, on a busy host
                if number >= ROUNDS and 'checksum_mismatch' in outcomes:
                    break
                try:
                    receipt = region.get(b'value')
                    expect.equal((receipt.verified, receipt.crc32c), (True, grd.checksum(data)))
                    outcomes.add('value')
                except grd.GrdError as error:
                    expect.holds(error.name in ('checksum_mismatch', 'server_error', 'lost'), error)
                    outcomes.add(error.name)
        expect.holds('checksum_mismatch' in outcomes, f'no hole was noticed: {outcomes}')
        expect.equal(region.get(b'value').verified, True)
        region.close()
    expect.holds(stage.daemon.alive(), 'the daemon ended')


def punched_set(stage, **params):
    """Runs sets while holes are punched. Yields the outcome of each, with the value that the server then has."""
    with stage.memory(SIZE) as memory, stage.session() as session:
        region = session.register(memory)
        for _ in range(ROUNDS):
            stage.valkey.call('DEL', 'key')
            memory.fill(VALUE)
            with_holes = session.start_set(region, 0, SIZE, 'key', **params)
            holes = 0
            while not session.answered(with_holes):
                memory.punch(holes * 7 * PAGE % (SIZE - HOLE), HOLE)
                holes += 1
            yield session.outcome(with_holes), stage.valkey.value('key')


def test_set_with_checksum(stage):
    """set with a known checksum: an error, or stored with that very checksum"""
    checksum = grd.checksum(bytes([VALUE]) * SIZE)
    for outcome, value in punched_set(stage, crc32c=checksum):
        expect.holds(outcome in ('ok', 'checksum_mismatch', 'server_error', 'lost'), outcome)
        if outcome == 'ok':
            check_bytes(value, VALUE)
            expect.equal(stage.valkey.crc('key'), checksum)
        else:
            expect.equal(value, None, 'a value was stored although its set failed')
    expect.holds(stage.daemon.alive(), 'the daemon ended')


def test_set_without_checksum(stage):
    """set without one: any mix of the bytes and zeros, never other bytes"""
    for outcome, value in punched_set(stage):
        expect.holds(outcome in ('ok', 'server_error', 'lost'), outcome)
        if value is not None:
            expect.equal(len(value), SIZE)
            check_bytes(value, VALUE, 0)
    expect.holds(stage.daemon.alive(), 'the daemon ended')


tap.run(globals(), Stage(module_options={'chunk-size': 1 << 20}))
