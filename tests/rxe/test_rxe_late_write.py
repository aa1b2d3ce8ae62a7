"""A lane that ends in mid-bytes takes its queue pair along: no byte lands later, and nobody else is disturbed."""
import select
import signal

from lib import expect, late, wait
from lib.late import ORIGINAL, VALUE
from lib.memory import MIB, noise

import rxe

SIZE = 48 * MIB
SMALL = MIB


def test_cancelled_in_the_middle(stage):
    """A cancel in mid-bytes: nothing lands after the answer, other lanes go on, the region and its rkey stay good"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    stage.valkey.store('small', bytes([VALUE]) * SMALL)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.memory(SMALL) as other, stage.session() as session:
            region, neighbour = session.register(memory), session.register(other)
            session.get(neighbour, 0, SMALL, 'small')  # so that the second lane is there
            other.fill(ORIGINAL)
            number = session.start_get(region, 0, SIZE, 'value')
            late.wait_for_bytes(memory, 60)
            small = session.start_get(neighbour, 0, SMALL, 'small')
            session.call('transfer.cancel', id=number)
            if session.outcome(number) != 'cancelled':
                raise late.NotInTheMiddle
            late.watch(memory)
            expect.equal(session.wait(small)['length'], SMALL)
            expect.holds(other.holds(VALUE), 'the neighbour has other bytes')
            stage.valkey.wait_idle(120)
            made = session.call('status')['fabric']['registrations_total']
            memory.fill(0)
            expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)
            expect.holds(memory.holds(VALUE), 'the region does not work any more')
            expect.equal(session.call('status')['fabric']['registrations_total'], made, 'registrations')

    late.attempts(stage, once)


def connect_two_lanes(stage, users):
    """So that neither transfer below has ended before the other one's lane is there."""
    with stage.valkey.faults(test_delay_before_reply_ms=3000):
        numbers = [(session, session.start_get(region, at * SMALL, SMALL, 'small'))
                   for at, (session, region) in enumerate(users)]
        for session, number in numbers:
            session.wait(number, 120)


def both_in_the_middle(stage, memory, neighbour_value, end_the_first):
    """Two clients share one arena, with a get in flight each: the first one's window is ended by end_the_first(session,
    number), and nothing of it lands later, while the other goes on over the same registration."""
    size = memory.size // 2
    with stage.session() as other, stage.session() as first:
        region, shared = first.register(memory), other.register(memory)
        connect_two_lanes(stage, [(first, region), (other, shared)])
        memory.fill(ORIGINAL)
        number = first.start_get(region, 0, size, 'value')
        neighbour = other.start_get(shared, size, size, 'noise')
        for at in (0, size):
            late.wait_for_bytes(memory, 60, at)
        end_the_first(first, other, number)
        if other.answered(neighbour) or memory.first_page_holding(ORIGINAL, size) == size:
            raise late.NotInTheMiddle
        late.watch(memory, size=size)
        expect.equal(other.wait(neighbour, 120)['length'], size)
        expect.equal(memory[size:] == neighbour_value, True, 'the bytes of the other lane')
        stage.valkey.wait_idle(120)
        made = other.call('status')['fabric']['registrations_total']
        memory.fill(0)
        expect.equal(other.get(shared, 0, size, 'value')['length'], size)
        expect.holds(memory.holds(VALUE, 0, size) and memory.holds(0, size), 'the next transfer brought other bytes')
        expect.equal(other.call('status')['fabric']['registrations_total'], made, 'registrations')
        other.call('region.close', region=shared)


def shared_arena(stage, end_the_first):
    value = noise(SIZE, seed=7)
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    stage.valkey.store('noise', value)
    stage.valkey.store('small', bytes([VALUE]) * SMALL)

    def once(_):
        with stage.memory(2 * SIZE, fill=ORIGINAL) as memory:
            both_in_the_middle(stage, memory, value, end_the_first)

    late.attempts(stage, once)


def test_one_of_two_on_an_arena_is_cancelled(stage):
    """Two clients' lanes write through one registration, one is cancelled: the other's bytes and its rkey stay good"""
    def cancel(first, _, number):
        first.call('transfer.cancel', id=number)
        if first.outcome(number) != 'cancelled':
            raise late.NotInTheMiddle

    shared_arena(stage, cancel)


def test_one_of_two_on_an_arena_leaves(stage):
    """The same when one of the two clients is gone: its lane is destroyed before its region is given up"""
    def leave(first, other, _):
        first.close()
        wait.until(lambda: other.call('status')['memory']['regions'] == 1, 'the region of the client that left', 60)

    shared_arena(stage, leave)


def test_daemon_killed(stage):
    """The daemon is killed in mid-bytes: nothing lands once its process is gone"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            session.start_get(session.register(memory), 0, SIZE, 'value')
            late.wait_for_bytes(memory, 60)
            stage.daemon.process.signal(signal.SIGKILL)
            expect.holds(select.select([session.pidfd], [], [], 60)[0], 'the pidfd of the daemon is not readable')
            late.watch(memory)

    late.attempts(stage, once)


rxe.run(globals(), rxe.Rxe(module_options={'chunk-size': SIZE}))
