"""Bad input must change nothing: after each refusal the same connection moves a value, and the daemon holds as much as
before."""
from lib import expect, wait
from lib.memory import noise
from lib.session import RpcError, Session

SIZE = 1 << 20
HALF = SIZE // 2
VALUE = 3000
SETTLED = 10  # looks in a row that must agree
SOON = 15     # seconds in which all is as before, if nothing that was about to end was counted


class Guard:
    """A session with a region, and what the daemon holds while nothing goes on."""

    def __init__(self, stage, daemon=None):
        self.stage = stage
        self.daemon = daemon or stage.daemon
        self.session = Session(self.daemon.path)
        self.memory = stage.memory(SIZE)
        self.region = self.session.register(self.memory)
        self.operator = Session(self.daemon.admin_path, hello=False)
        self.rounds = 0
        self.moves()
        self.before = self.settled()

    def close(self):
        self.session.close()
        self.operator.close()
        self.memory.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def held(self):
        """What must not change: descriptors, mappings of memory files, regions, registered bytes, open transfers."""
        status = self.operator.call('status')
        with open(f'/proc/{self.daemon.pid}/maps', encoding='utf-8', errors='replace') as file:
            mappings = sum('/memfd:' in line for line in file)
        memory = status['memory']
        return {'fds': self.daemon.fd_count(), 'mappings': mappings, 'regions': memory['regions'],
                'arenas': memory['arenas'], 'pinned_bytes': memory['pinned_bytes'],
                'quarantined_bytes': memory['quarantined_bytes'], 'open': status['transfers']['open'],
                'sessions': status['daemon']['sessions']}

    def settled(self):
        seen = []

        def same():
            seen.append(self.held())
            return len(seen) >= SETTLED and all(entry == seen[-1] for entry in seen[-SETTLED:])

        wait.until(same, lambda: f'what the daemon holds settles: {seen[-1]}', pause=0.02)
        return seen[-1]

    def moves(self):
        """A SET and a GET on the same connection, compared byte for byte."""
        self.rounds += 1
        data = noise(VALUE, self.rounds)
        self.memory[0:VALUE] = data
        self.memory.fill(0, HALF, HALF + VALUE)
        self.session.set(self.region, 0, VALUE, 'guard')
        got = self.session.get(self.region, HALF, HALF, 'guard')
        expect.equal((got['found'], got['length']), (True, VALUE))
        expect.same_bytes(self.memory[HALF:HALF + VALUE], data, 'value')

    def as_before(self, what=''):
        """Until the daemon holds as much as before; or less, for good, where what was about to end had been counted: on
        a busy host a worker may be late."""
        if wait.soon(lambda: self.held() == self.before, SOON):
            return
        wait.until(lambda: self._no_more(self.held()),
                   lambda: f'{what}: the daemon holds {self.held()}, before {self.before}')
        now = self.settled()
        expect.holds(self._no_more(now), f'{what}: {now}, before {self.before}')
        self.before = now

    def _no_more(self, held):
        return all(held[name] <= self.before[name] for name in held)

    def unharmed(self, what=''):
        self.moves()
        self.as_before(what)

    def expect(self, error, name, *words, what=''):
        """The error has this name, and its text says these words."""
        expect.equal(error.name, name, f'{what} {error}')
        for word in words:
            expect.holds(str(word) in error.message, f'{what}: "{word}" is not in: {error.message}')

    def refuses(self, number, name, *words, what=''):
        """Request `number` is refused, and nothing has changed. Returns the error."""
        try:
            result = self.session.wait(number)
        except RpcError as error:
            self.expect(error, name, *words, what=what)
            self.unharmed(what)
            return error
        raise AssertionError(f'{what}: no error, but {result}')

    def refuses_packet(self, packet, name, *words, fds=()):
        """As refuses(), of a packet without an id that can be read."""
        self.session.send_bytes(packet, fds)
        error = self.session.wait_without_id()
        self.expect(error, name, *words, what=repr(packet[:100]))
        self.unharmed(repr(packet[:100]))
        return error
