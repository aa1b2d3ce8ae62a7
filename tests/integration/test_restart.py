"""The daemon's restart under a client that goes on: between transfers, in the middle of them, and over and over.

GRD_RESTARTS: number of rounds of the last test.
"""
import os
import random
import threading
import time

from lib import expect, grd, tap, wait
from lib.grd_queue import GET, SET, Queue
from lib.session import Session
from lib.stage import Stage

VALUE = 64 * 1024
GETS, ALONE, SETS = 4, 2, 2  # in flight in each round: gets, gets that may not be run again, sets
WINDOWS = GETS + ALONE + SETS
ROUNDS = int(os.environ.get('GRD_RESTARTS', '8'))


def value_of(key):
    return random.Random(key).randbytes(VALUE)


class Calls:
    """Transfers in threads of their own, each in its window; how they ended."""

    def __init__(self):
        self.ended = {}
        self.threads = []

    def start(self, name, call):
        def run():
            try:
                self.ended[name] = 'ok', call()
            except grd.GrdError as error:
                self.ended[name] = error.name, error.may_have_run

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def join(self, seconds=60):
        for thread in self.threads:
            thread.join(seconds)
        expect.equal(len(self.ended), len(self.threads), 'calls that ended')
        return self.ended


def in_flight(daemon, kind):
    """Transfers of that kind which have reached the server, as the operator sees them."""
    with Session(daemon.admin_path, hello=False) as operator:
        entries = operator.call('transfers')['transfers']
    return sum(entry['kind'] == kind and entry['state'] == 'sent' for entry in entries)


def test_between_transfers(stage):
    """The daemon ends in order, and is killed: regions, keys and new regions work with the next one"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    with grd.Client(daemon.path) as client:
        first, second = client.create(8192), client.create(8192)
        first.write(0, b'a value')
        first.set(b'kept', 0, 7)
        for end in (daemon.stop, daemon.kill):
            end()
            daemon.start()
            expect.equal(second.get(b'kept', 4096, 7).verified, True)
            expect.equal(second.read(4096, 7), b'a value')
            first.set(b'again', 0, 7)
            expect.equal(client.exists(b'kept', b'again', b'neither'), [True, True, False])
            expect.equal(client.key_info(b'again')[0].length, 7)
            expect.equal(client.delete(b'again'), [True])
            third = client.create(4096)
            third.set(b'third', 0, 7)
            expect.equal(third.close(), True)
            with Session(daemon.admin_path, hello=False) as operator:
                expect.equal(len(operator.call('regions')['regions']), 2, 'regions of the next daemon')
        expect.equal(first.close(), True)
        expect.equal(second.close(), True)


def test_absent_for_a_while(stage):
    """A call waits for a daemon that comes back, and no longer than it may for one that does not"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    client = grd.Client(daemon.path, reconnect_ms=300)
    region = client.create(8192)
    daemon.stop()
    start = time.monotonic()
    with expect.error('no_daemon'):
        region.set(b'key', 0, 100)
    expect.holds(0.29 < time.monotonic() - start < 60, 'it waited for reconnect_ms')
    with expect.error('deadline'):
        region.set(b'key', 0, 100, deadline_ms=20)
    client.close()
    region.close()
    with grd.Client(daemon_again(daemon).path, reconnect_ms=30000) as patient:
        region = patient.create(8192)
        daemon.kill()
        calls = Calls()
        calls.start('set', lambda: region.set(b'key', 0, 100))
        wait.soon(lambda: calls.ended, 0.2)
        expect.equal(calls.ended, {}, 'calls that gave up early')
        daemon.start()
        expect.equal(calls.join()['set'][0], 'ok')
        region.close()


def daemon_again(daemon):
    daemon.start()
    return daemon


def test_refused_region(stage):
    """A budget that has become too small for one region of two: the other works"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'memory.pinned_limit': '8M'})
    with grd.Client(daemon.path) as client:
        small, large = client.create(1 << 20), client.create(6 << 20)
        daemon.stop()
        daemon.sections['memory']['pinned_limit'] = '4M'
        daemon.start()
        small.set(b'key', 0, 1000)
        with expect.error('over_budget'):
            large.get(b'key', 0, 1000)
        expect.equal(small.get(b'key', 4096, 1000).verified, True)
        daemon.stop()
        daemon.sections['memory']['pinned_limit'] = '8M'
        daemon.start()
        expect.equal(large.get(b'key', 0, 1000).verified, True)
        large.close()
        small.close()


def test_polled_queue(stage):
    """A program that only polls a queue's descriptor and reaps gets through it, asleep while it waits"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    server.store('value', value_of('value'))
    with grd.Client(daemon.path, reconnect_ms=30000) as client:
        region = client.create(8 * VALUE)
        queue = Queue(client)
        with server.faults(test_never_answer='yes'):
            for number in range(4):
                queue.submit(GET if number < 2 else SET, b'value' if number < 2 else b'set',
                             region.window(number * VALUE, VALUE), number)
            wait.until(lambda: (in_flight(daemon, 'get'), in_flight(daemon, 'set')) == (2, 2), 'all are in flight')
        daemon.kill()
        sets = queue.reap(2, 60)
        expect.equal({number: entry.outcome for number, entry in sets.items()},
                     {2: ('interrupted', True), 3: ('interrupted', True)})
        queue.submit(SET, b'later', region.window(2 * VALUE, VALUE), 5)
        queue.wakes = 0
        daemon.start()
        gets = queue.reap(3, 60)
        expect.equal({number: entry.outcome for number, entry in gets.items()},
                     {0: ('ok', False), 1: ('ok', False), 5: ('ok', False)})
        for number in (0, 1):
            expect.equal(region.read(number * VALUE, VALUE) == value_of('value'), True, 'the right bytes')
        expect.holds(queue.wakes < 60, f'{queue.wakes} wake-ups')
        queue.close()
        region.close()


class Rounds:
    """Kills and restarts, each with transfers in mid-bytes. A window is used in one round only, and watched after."""

    def __init__(self, stage):
        self.server = stage.other_valkey(module_options={'chunk-size': VALUE // 4})
        self.daemon = stage.other_daemon(self.server, config={'valkey.connections': WINDOWS})
        self.client = grd.Client(self.daemon.path, reconnect_ms=30000)
        self.region = self.client.create(ROUNDS * WINDOWS * VALUE)
        self.watched = []  # (time, offset, canary)
        self.checked = 0
        for number in range(GETS + ALONE):
            self.server.store(f'value-{number}', value_of(f'value-{number}'))

    def offset(self, number, index):
        return (number * WINDOWS + index) * VALUE

    def start(self, number):
        calls = Calls()
        for index in range(GETS + ALONE):
            calls.start(index, lambda index=index: self.region.get(f'value-{index}'.encode(),
                                                                   self.offset(number, index), VALUE,
                                                                   no_retry=index >= GETS))
        for index in range(GETS + ALONE, WINDOWS):
            key = f'set-{number}-{index}'
            self.region.write(self.offset(number, index), value_of(key))
            calls.start(index, lambda index=index, key=key: self.region.set(key.encode(), self.offset(number, index),
                                                                            VALUE))
        return calls

    def in_flight(self):
        return in_flight(self.daemon, 'get'), in_flight(self.daemon, 'set')

    def run(self, number):
        with self.server.faults(test_delay_between_chunks_ms=3000):  # until all are in flight, on a busy host
            calls = self.start(number)
            wait.until(lambda: self.in_flight() == (GETS + ALONE, SETS), 'all are in flight')
        expect.equal(self.in_flight(), (GETS + ALONE, SETS), 'gets and sets in flight just before the kill')
        self.daemon.kill()
        self.daemon.start()
        ended = calls.join()
        for index in range(GETS):
            expect.equal(ended[index][0], 'ok', f'get {index}')
            expect.equal(self.region.read(self.offset(number, index), VALUE) == value_of(f'value-{index}'), True,
                         'the right bytes')
        for index in range(GETS, WINDOWS):
            expect.equal(ended[index], ('interrupted', index >= GETS + ALONE), f'transfer {index}')
            canary = bytes([0x40 + number % 64, index]) * (VALUE // 2)
            self.region.write(self.offset(number, index), canary)
            self.watched.append((time.monotonic(), self.offset(number, index), canary))
        self.look()

    def look(self):
        """At those windows that have been left alone for a second."""
        while self.watched and time.monotonic() - self.watched[0][0] >= 1:
            _, offset, canary = self.watched.pop(0)
            expect.equal(self.region.read(offset, VALUE) == canary, True, 'the window was left alone')
            self.checked += 1

    def finish(self):
        wait.until(lambda: self.look() or not self.watched, 'every window was watched for a second')
        expect.equal(self.checked, ROUNDS * (ALONE + SETS), 'windows that were watched')
        self.server.wait_idle()
        for number in range(ROUNDS):
            for index in range(GETS + ALONE, WINDOWS):
                key = f'set-{number}-{index}'
                stored = self.server.call('EXISTS', key) == 1
                expect.holds(not stored or self.server.value(key) == value_of(key),
                             f'what {key} holds was the window of the set')
        expect.equal(self.region.close(), True)
        self.client.close()


@tap.slow(15 * ROUNDS)
@tap.waits(2 + ROUNDS // 10)  # each round has a daemon of its own
def test_again_and_again(stage):
    """Over and over kill -9 and restart, each with 6 gets and 2 sets in mid-bytes: right data, or interrupted"""
    rounds = Rounds(stage)
    start = time.monotonic()
    for number in range(ROUNDS):
        rounds.run(number)
    rounds.finish()
    print(f'# {ROUNDS} rounds in {time.monotonic() - start:.1f} s')


tap.run(globals(), Stage())
