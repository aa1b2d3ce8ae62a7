"""A steady load of sets and gets through a daemon, on a thread of its own, while the test disturbs the servers.

Each value begins with a nonce of 16 bytes that no other set has, and the rest follows from it: so whatever a get brings
tells which set it comes from, and every byte of it is known. The servers write down the nonce of each set that they
keep (largeobj.test-journal). At the end every request was answered, and the journal agrees with the answers.
"""
import collections
import hashlib
import os
import random
import sys
import threading
import time

from lib import expect, wait
from lib.session import RpcError

WINDOW = 128 * 1024
WINDOWS = 8         # in flight
KEYS = 12
PAUSE = 0.002       # between two requests: a load, not a flood
NONCE = 16
DEADLINE_MS = 10_000
SHORT_DEADLINE_MS = 150
ANSWERED_WITHIN = 60
FLOWS_WITHIN = 90

# What may be answered while servers are killed, held up or cut off.
DISTURBANCES = frozenset({'lost', 'server_down', 'server_error', 'deadline', 'not_usable'})


class Set:
    """One set, from its request to its answer."""

    def __init__(self, number, key, nonce, length):
        self.number = number    # in the order of requests
        self.key = key
        self.nonce = nonce
        self.length = length
        self.answered = None    # the number of the next request, when the answer came
        self.outcome = None     # 'ok' or the name of an error
        self.may_have_run = True

    def value(self):
        # 61 bytes: no page and no 16 bytes look like their neighbours.
        block = self.nonce + hashlib.sha512(self.nonce).digest()[:45]
        return (block * (self.length // len(block) + 1))[:self.length]


class Load:
    """with Load(stage) as load: disturb(); load.flows()

    errors: names of errors that may be answered. stale: a get may bring a value that was
    replaced before, as after a failover, since objects are not replicated.
    """

    def __init__(self, stage, errors=DISTURBANCES, stale=False):
        self.stage = stage
        self.errors = errors
        self.stale = stale
        seed = random.randrange(1 << 32)
        print(f'# seed of the load: {seed}', flush=True)
        self.chance = random.Random(seed)
        self.keys = self._choose_keys(f'{seed:x}')  # of no other load
        self.memory = stage.memory(WINDOWS * WINDOW)
        self.session = stage.session()
        self.region = self.session.register(self.memory)
        self.session.answers.clear()
        self.free = list(range(WINDOWS))
        self.pending = {}                       # id: (window, number, key, its Set or None, when its deadline is)
        self.sets = {}                          # by nonce
        self.newest = {}                        # key: number of the newest set that was answered with success
        self.last_ok = {'set': {}, 'get': {}}   # key: number of the newest request that was answered with success
        self.counts = collections.Counter()
        self.next_number = 1
        self.stopping = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _choose_keys(self, prefix):
        """As many of each primary: by chance one could have none, and would never be in the middle of a transfer."""
        cluster = self.stage.cluster
        cluster.wait_settled()
        primaries = cluster.current_primaries()
        return [cluster.key_of(primaries[number % len(primaries)], f'{prefix}:{number}') for number in range(KEYS)]

    def __enter__(self):
        self.thread.start()
        try:
            self.flows()
        except BaseException as failure:
            self.__exit__(type(failure))
            raise
        return self

    def __exit__(self, kind, *_):
        self.stopping.set()
        self.thread.join(ANSWERED_WITHIN + 10)
        alive = self.thread.is_alive()
        self.session.close()
        self.memory.close()
        print(f'# {dict(sorted(self.counts.items()))}', file=sys.stdout, flush=True)
        if kind is None:
            expect.holds(not alive, 'the load did not end')
            self._raise()
            self._check_journal()

    def flows(self, seconds=FLOWS_WITHIN):
        """Until each key was set and got with success, by requests that were made from now on."""
        since = self.next_number

        def behind():
            return [key for key in self.keys for last in self.last_ok.values() if last.get(key, 0) < since]

        def flowing():
            self._raise()
            return not behind()

        def describe():
            owners = {key: self.stage.cluster.told_of(key) for key in behind()}
            return f'the load flows again; not yet, with whom each node sends to: {owners}; {dict(self.counts)}'

        wait.until(flowing, describe, seconds, 0.01)

    def failed_sets(self):
        return sum(count for name, count in list(self.counts.items()) if name.startswith('set ') and name != 'set ok')

    def _raise(self):
        if self.failure is not None:
            raise AssertionError(f'the load failed: {self.failure!r}; {dict(self.counts)}') from self.failure

    # --- the thread

    def _run(self):
        try:
            while not self.stopping.is_set():
                if self.free:
                    self._begin(self.free.pop())
                self.session.receive(PAUSE)
                self._take()
                if self.free:
                    time.sleep(PAUSE)
            self.session.pump_until(self._all_taken, ANSWERED_WITHIN)
            expect.equal([entry[2:] for entry in self.pending.values()], [], 'requests without an answer')
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure

    def _begin(self, window):
        key, number = self.chance.choice(self.keys), self.next_number
        self.next_number += 1
        deadline = SHORT_DEADLINE_MS if self.chance.random() < 0.05 else DEADLINE_MS
        at = window * WINDOW
        ends = time.monotonic() + deadline / 1000
        if self.chance.random() < 0.5:
            request = Set(number, key, os.urandom(NONCE), self.chance.randrange(NONCE, WINDOW))
            self.sets[request.nonce] = request
            self.memory[at:at + request.length] = request.value()
            sent = self.session.start_set(self.region, at, request.length, key, deadline_ms=deadline)
        else:
            request = None
            self.memory.fill(0, at, at + WINDOW)
            sent = self.session.start_get(self.region, at, WINDOW, key, deadline_ms=deadline)
        self.pending[sent] = (window, number, key, request, ends)

    def _all_taken(self):
        self._take()
        return not self.pending

    def _take(self):
        expect.holds(not self.session.ended, 'the daemon ended the session')
        for number in list(self.session.answers):
            expect.holds(number in self.pending, f'a second answer: {self.session.answers[number]}')
            window, begun, key, request, ends = self.pending.pop(number)
            try:
                result = self.session.wait(number, 0)
            except RpcError as error:
                self._failed(request, error, ends)
            else:
                self._done(window, begun, key, request, result)
            del self.session.answers[number]
            self.free.append(window)

    def _failed(self, request, error, ends):
        kind = 'get' if request is None else 'set'
        self.counts[f'{kind} {error.name}'] += 1
        # A refusal that comes in the grace of a deadline is told in its place.
        name = 'deadline' if error.data.get('outcome') == 'refused' and time.monotonic() >= ends else error.name
        expect.holds(name in self.errors, f'{kind}: {error}')
        expect.holds(error.data.get('memory_released', True), f'{kind}: {error}')
        if request is not None:
            request.outcome = error.name
            request.may_have_run = error.data.get('may_have_run', False)

    def _done(self, window, begun, key, request, result):
        if request is not None:
            self.counts['set ok'] += 1
            request.outcome, request.answered = 'ok', self.next_number
            self.newest[key] = max(self.newest.get(key, 0), request.number)
            kind = 'set'
        elif result['found']:
            self.counts['get ok'] += 1
            self._check_value(window, begun, key, result['length'])
            kind = 'get'
        else:
            self.counts['get missing'] += 1
            kind = 'get'
        self.last_ok[kind][key] = max(self.last_ok[kind].get(key, 0), begun)

    def _check_value(self, window, begun, key, length):
        at = window * WINDOW
        got = bytes(self.memory[at:at + length])
        stored = self.sets.get(got[:NONCE])
        expect.holds(stored is not None, f'{key}: a value that nobody set: {got[:NONCE].hex()}')
        expect.equal((stored.key, stored.length), (key, length), 'key and length of a value')
        expect.same_bytes(got, stored.value(), key)
        if not self.stale and stored.outcome == 'ok':
            later = [other for other in self.sets.values() if other.key == key and other.outcome == 'ok'
                     and other.number >= stored.answered and other.answered <= begun]
            expect.holds(not later, f'{key}: a value that was replaced before the get was asked for')

    # --- afterwards

    def _check_journal(self):
        for node in self.stage.cluster.alive():
            node.wait_idle()
        kept = collections.Counter()
        for _, key, nonce in self.stage.journal():
            if nonce in self.sets:  # others: of earlier loads
                kept[nonce] += 1
                expect.equal(key, self.sets[nonce].key, 'key of a set')
        for request in self.sets.values():
            what = f'set {request.number} of {request.key}, answered {request.outcome}'
            expect.holds(kept[request.nonce] <= 1, f'{what}: it ran {kept[request.nonce]} times')
            if request.outcome == 'ok':
                expect.equal(kept[request.nonce], 1, f'{what}: times that it ran')
            elif not request.may_have_run:
                expect.equal(kept[request.nonce], 0, f'{what}, may_have_run false: times that it ran')
