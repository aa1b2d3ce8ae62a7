"""One transfer is taken back, by a cancel, a deadline or its client's death: what is left of it and of the others."""
import os
import signal
import time

from lib import expect, late, tap, wait
from lib.memory import MIB, PAGE
from lib.session import Session
from lib.stage import Stage

CANCELS = int(os.environ.get('GRD_CANCELS', 100))


def asked(stage, method, daemon=None):
    """An answer of the admin socket."""
    with Session((daemon or stage.daemon).admin_path, hello=False) as operator:
        return operator.call(method)


def states(stage, daemon=None):
    """What the daemon works at: (kind, state) of each transfer."""
    return sorted((entry['kind'], entry['state']) for entry in asked(stage, 'transfers', daemon)['transfers'])


def ended(stage, daemon=None):
    return asked(stage, 'status', daemon)['transfers']['ended']


# --- of one region

PIECE = MIB
SIZE = 24 * PIECE
TAKEN_BACK = 3


def test_one_of_eight(stage):
    """Eight gets of one region, one cancelled in mid-bytes: the other seven complete, and no byte of it comes late"""
    for number in range(8):
        stage.valkey.store(f'value{number}', bytes([number + 1]) * SIZE)
    before = stage.valkey.info('rdma_writes_total')
    start = TAKEN_BACK * SIZE
    with stage.memory(8 * SIZE, fill=late.ORIGINAL) as memory, stage.session() as session:
        region = session.register(memory)
        with stage.valkey.faults(chunk_size=PIECE, test_delay_between_chunks_ms=200):
            numbers = [session.start_get(region, n * SIZE, SIZE, f'value{n}') for n in range(8)]
            # A third of its pieces are there, the others come one after the other, 200 ms apart at least.
            wait.until(lambda: memory[start + 8 * PIECE] != late.ORIGINAL, 'a third of the value')
            wait.until(lambda: states(stage) == [('get', 'sent')] * 8, lambda: f'all are sent: {states(stage)}')
            expect.equal(stage.valkey.info('rdma_writes_total'), before, 'gets that the server has ended')
            expect.equal(session.call('transfer.cancel', id=numbers[TAKEN_BACK])['cancelled'], True)
            expect.equal(session.outcome(numbers[TAKEN_BACK]), 'cancelled')
        expect.holds(memory.holds(late.ORIGINAL, start + SIZE - PAGE, start + SIZE), 'it had come to its end')
        memory.fill(late.REUSED, start, start + SIZE)
        for number in (n for n in range(8) if n != TAKEN_BACK):
            expect.equal(session.wait(numbers[number])['length'], SIZE)
            expect.holds(memory.holds(number + 1, number * SIZE, (number + 1) * SIZE), f'wrong bytes in get {number}')
            expect.holds(memory.holds(late.REUSED, start, start + SIZE), 'late bytes')
        stage.valkey.wait_idle()
        expect.equal(stage.valkey.info('rdma_writes_total') - before, 7, 'gets that the server has ended')
        expect.holds(memory.holds(late.REUSED, start, start + SIZE), 'late bytes')
    expect.equal(asked(stage, 'status')['transfers']['run_again'], 0)


def cancel_in_the_middle(stage, session, region, memory, size):
    """Takes a get back when its first byte is there, and the last is not to come for a while."""
    memory[0] = late.ORIGINAL
    memory[size - 1] = late.ORIGINAL
    number = session.start_get(region, 0, size, 'slow')
    wait.until(lambda: memory[0] != late.ORIGINAL, 'the first byte', pause=0)
    expect.equal(session.call('transfer.cancel', id=number)['cancelled'], True)
    expect.equal(session.outcome(number), 'cancelled')
    expect.equal(memory[size - 1], late.ORIGINAL, 'the last byte')


def cancelled_many_times(stage, times):
    slow, size = 512 * 1024, 16 * 1024
    daemon = stage.other_daemon(config={'fabric.revoke_grace_ms': 0})
    stage.valkey.store('slow', b'\x01' * slow)
    for number in range(7):
        stage.valkey.store(f'quick{number}', bytes([number + 2]) * size)
    with stage.memory(MIB) as memory:
        sessions = [stage.session(daemon) for _ in range(8)]
        regions = [session.register(memory) for session in sessions]
        expect.equal(asked(stage, 'status', daemon)['memory']['arenas'], 1)
        # Values of one piece are not held up; that of many is.
        with stage.valkey.faults(chunk_size=size, test_delay_between_chunks_ms=100):
            for _ in range(times):
                numbers = [sessions[n + 1].start_get(regions[n + 1], slow + n * size, size, f'quick{n}')
                           for n in range(7)]
                cancel_in_the_middle(stage, sessions[0], regions[0], memory, slow)
                for n in range(7):
                    expect.equal(sessions[n + 1].wait(numbers[n])['length'], size)
                    at = slow + n * size
                    expect.holds(memory.holds(n + 2, at, at + size), f'wrong bytes in session {n + 1}')
                    memory.fill(0, at, at + size)
        expect.equal(ended(stage, daemon)['cancelled, sent'], times)
        expect.equal(ended(stage, daemon)['done'], 7 * times)
        expect.equal(asked(stage, 'status', daemon)['nodes'][0]['revocations'], times)
        for session in sessions:
            session.close()


@tap.slow(CANCELS // 2)
def test_cancelled_again_and_again(stage):
    """Eight sessions on one arena, one of them cancels again and again in mid-bytes: the others see nothing of it"""
    cancelled_many_times(stage, CANCELS)


# --- of a set

def test_set_past_its_deadline(stage):
    """A deadline ends a set that was sent, which may have run, and one that waits, which has not"""
    daemon = stage.other_daemon(config={'valkey.connections': 1, 'fabric.revoke_grace_ms': 20})
    with stage.memory(2 * PAGE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, PAGE, 'first')  # the connection is there
        with stage.valkey.faults(test_never_answer='yes'):
            sent = session.start_set(region, 0, PAGE, 'sent', deadline_ms=6000)
            wait.until(lambda: states(stage, daemon) == [('set', 'sent')], 'it is sent')
            queued = session.start_set(region, PAGE, PAGE, 'queued', deadline_ms=50)
            expect.equal(session.outcome(queued), 'deadline')
            expect.equal(session.outcome(sent), 'deadline')
        data = [session.answers[number]['error']['data'] for number in (sent, queued)]
        expect.equal([entry['may_have_run'] for entry in data], [True, False])
        expect.equal([entry['outcome'] for entry in data], ['deadline, sent', 'deadline, not sent'])
        stage.valkey.wait_idle()
        expect.equal(session.exists('sent', 'queued'), [True, False])


# --- of a client that is killed

def killed_with_transfers(stage, daemon, memory):
    """A client with a get and a set that were sent, and a get that waits, is killed."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session = Session(daemon.path)
            region = session.register(memory)
            session.start_get(region, 0, PAGE, 'value')
            session.start_set(region, PAGE, PAGE, 'orphan')
            wait.until(lambda: ('get', 'sent') in states(stage, daemon) and ('set', 'sent') in states(stage, daemon),
                       'both are sent')
            session.start_get(region, 2 * PAGE, PAGE, 'value')
            session.call('status')  # it has been read
            os.write(tell, b'x')
            time.sleep(600)
        finally:
            os._exit(1)
    os.close(tell)
    expect.equal(os.read(ready, 1), b'x')
    os.close(ready)
    expect.equal(states(stage, daemon), [('get', 'queued'), ('get', 'sent'), ('get', 'sent'), ('set', 'sent')])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_killed_client(stage):
    """A client is killed: what waits vanishes, its get loses its lane at once, its set finishes; others go on"""
    daemon = stage.other_daemon(config={'valkey.connections': 3, 'daemon.drain_ms': 60_000})
    stage.valkey.store('value', b'v' * PAGE)
    with stage.memory(3 * PAGE, fill=0x33) as memory, stage.memory(PAGE) as mine, stage.session(daemon) as session:
        region = session.register(mine)
        with stage.valkey.faults(test_delay_before_reply_ms=8000):
            other = session.start_get(region, 0, PAGE, 'value')
            wait.until(lambda: states(stage, daemon) == [('get', 'sent')], 'it is sent')
            killed_with_transfers(stage, daemon, memory)
            wait.until(lambda: states(stage, daemon) == [('get', 'sent'), ('set', 'sent')], 'its gets are gone')
            expect.equal(asked(stage, 'status', daemon)['nodes'][0]['revocations'], 1)
            expect.equal(session.wait(other)['length'], PAGE)
        expect.equal(mine[:], b'v' * PAGE)
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the daemon gave the memory up')
        expect.equal(stage.valkey.value('orphan'), b'\x33' * PAGE)
        rows = ended(stage, daemon)
        expect.equal((rows['client gone, not sent'], rows['client gone, sent'], rows['done']), (1, 1, 2))


def test_killed_client_of_a_server_that_hangs(stage):
    """The same when the server never answers: after [daemon] drain_ms the set loses its lane too"""
    daemon = stage.other_daemon(config={'valkey.connections': 3, 'daemon.drain_ms': 300})
    stage.valkey.store('value', b'v' * PAGE)
    with stage.memory(3 * PAGE) as memory, stage.memory(PAGE) as mine, stage.session(daemon) as session:
        region = session.register(mine)
        with stage.valkey.faults(test_never_answer='yes'):
            other = session.start_get(region, 0, PAGE, 'value')
            wait.until(lambda: states(stage, daemon) == [('get', 'sent')], 'it is sent')
            killed_with_transfers(stage, daemon, memory)
            wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the daemon gave the memory up')
            expect.equal(states(stage, daemon), [('get', 'sent')])
        rows = ended(stage, daemon)
        expect.equal((rows['client gone, not sent'], rows['client gone, sent']), (1, 2))
        session.call('transfer.cancel', id=other)
        expect.equal(session.outcome(other), 'cancelled')


def test_killed_client_with_nothing_in_flight(stage):
    """A client whose region is idle is killed: the memory is given up, with no transfer and no lane to wait for"""
    def account():
        memory = asked(stage, 'status')['memory']
        return [memory[name] for name in ('pinned_bytes', 'arenas', 'regions', 'quarantined_bytes')]

    empty = [0] * 4
    wait.until(lambda: account() == empty, 'what tests before have left is gone')
    before = asked(stage, 'status')
    with stage.memory(PAGE) as memory:
        session = stage.session()
        session.register(memory)
        session.close()
        wait.until(lambda: stage.daemon.holds_nothing_of(memory.name), 'the daemon gave the memory up')
        wait.until(lambda: account() == empty, 'the account is as before')
    expect.equal(asked(stage, 'status')['nodes'][0]['revocations'], before['nodes'][0]['revocations'])


tap.run(globals(), Stage())
