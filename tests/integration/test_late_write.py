"""Once a get is over, whatever ended it, no byte of its window changes any more."""
import contextlib
import os
import select
import signal
import sys

from lib import expect, late, tap, wait
from lib.late import ORIGINAL, REUSED, SIZE, VALUE
from lib.memory import PAGE
from lib.process import Process
from lib.stage import Stage

MOVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib', 'mover.py')
TIMINGS_MS = (10, 20, 5, 30, 15, 2, 40, 8, 25, 1)
HELD_MS = 4000  # a command by the server: it is cancelled before that is over


def store_value(stage):
    if stage.valkey.call('EXISTS', 'value') == 0:
        stage.valkey.store('value', bytes([VALUE]) * SIZE)


def start_mover(stage, memory):
    return Process('client', [sys.executable, MOVER, stage.daemon.path, str(memory.fd), str(SIZE), 'get', 'value'],
                   os.path.join(stage.new_folder(), 'log'), pass_fds=(memory.fd,))


def watch_with_a_neighbour(stage, memory):
    """The memory is given up: another client's takes its place in the daemon, and nothing may land there either."""
    with stage.memory(SIZE, fill=ORIGINAL) as other, stage.session() as session:
        session.register(other)
        late.watch(memory, stage.valkey, other)


def killed_client(stage, freeze):
    store_value(stage)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory:
            client = start_mover(stage, memory)
            try:
                if freeze:
                    late.freeze_in_the_middle(stage.valkey, memory)
                else:
                    late.wait_for_bytes(memory)
            finally:
                client.kill()
            wait.until(lambda: stage.daemon.holds_nothing_of(memory.name), 'the daemon gave the memory up')
            watch_with_a_neighbour(stage, memory)

    late.attempts(stage, once)
    expect.holds(stage.daemon.alive(), 'the daemon ended')


def test_client_killed(stage):
    """The client is killed in mid-bytes: nothing lands once the daemon has unmapped the memory"""
    killed_client(stage, freeze=False)


def test_client_killed_server_stopped(stage):
    """The same with a server that stands still meanwhile and goes on later"""
    killed_client(stage, freeze=True)


def answered(stage, faults, names):
    """The server ends its part in mid-bytes by itself, and goes on writing."""
    store_value(stage)

    def once(attempt):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            region = session.register(memory)
            with stage.valkey.faults(test_error_delay_ms=TIMINGS_MS[attempt % len(TIMINGS_MS)], **faults):
                number = session.start_get(region, 0, SIZE, 'value', retry=False)
                with expect.error(*names):
                    session.wait(number)
                late.watch(memory)
            stage.valkey.wait_idle()
            memory.fill(0)
            expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)
            expect.holds(memory.holds(VALUE), 'the region does not work any more')

    late.attempts(stage, once)


def test_connection_dropped(stage):
    """The server drops the connection in mid-bytes and goes on writing: nothing lands after the answer"""
    answered(stage, {'test_drop_while_running': 'yes'}, ['lost'])


def test_error_answered(stage):
    """The server answers an error in mid-bytes and goes on writing: nothing lands after the answer"""
    answered(stage, {'test_error_while_running': 'yes'}, ['server_error'])


def test_deadline(stage):
    """A deadline passes in mid-bytes: nothing lands after the answer"""
    store_value(stage)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            number = session.start_get(session.register(memory), 0, SIZE, 'value', deadline_ms=3000)
            late.freeze_in_the_middle(stage.valkey, memory, lambda: session.answered(number))
            expect.equal(session.outcome(number), 'deadline')
            late.watch(memory, stage.valkey)

    late.attempts(stage, once)


def test_command_held_by_the_server(stage):
    """A command that the server holds back is cancelled: it writes nothing when it runs, and the next ones work"""
    stage.valkey.store('small', bytes([VALUE]) * PAGE)
    with stage.memory(2 * PAGE, fill=ORIGINAL) as memory, stage.session() as session:
        region = session.register(memory)
        session.get(region, PAGE, PAGE, 'small')
        for fault in ('test_delay_before_transfer_ms', 'paused'):
            memory.fill(ORIGINAL)
            with contextlib.ExitStack() as stack:
                if fault == 'paused':
                    stage.valkey.call('CLIENT', 'PAUSE', HELD_MS, 'ALL')
                else:
                    stack.enter_context(stage.valkey.faults(**{fault: HELD_MS}))
                number = session.start_get(region, 0, PAGE, 'small')
                expect.equal(session.call('transfer.cancel', id=number)['cancelled'], True)
                expect.equal(session.outcome(number), 'cancelled')
                memory.fill(REUSED)
                expect.holds(not wait.soon(lambda: not memory.holds(REUSED), HELD_MS / 1000 + 0.5),
                             f'late bytes after {fault}')
            session.get(region, PAGE, PAGE, 'small')
            expect.holds(memory.holds(VALUE, PAGE, 2 * PAGE), 'the next one did not arrive')


def test_region_closed_by_force(stage):
    """region.close by force in mid-bytes: nothing lands after its answer"""
    store_value(stage)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            region = session.register(memory)
            number = session.start_get(region, 0, SIZE, 'value')
            late.freeze_in_the_middle(stage.valkey, memory)
            expect.equal(session.call('region.close', region=region, force=True)['memory_released'], True)
            expect.equal(session.outcome(number), 'cancelled')
            expect.holds(stage.daemon.holds_nothing_of(memory.name), 'the daemon still holds the memory')
            watch_with_a_neighbour(stage, memory)

    late.attempts(stage, once)


def test_neighbours_go_on(stage):
    """While one transfer is taken back, another on the same region completes"""
    store_value(stage)
    stage.valkey.store('small', b's' * 4096)

    def once(_):
        with stage.memory(SIZE + 4096, fill=ORIGINAL) as memory, stage.session() as session:
            region = session.register(memory)
            with stage.valkey.faults(test_delay_before_reply_ms=5000):
                large = session.start_get(region, 0, SIZE, 'value', deadline_ms=1000)
                small = session.start_get(region, SIZE, 4096, 'small')
                outcome = session.outcome(large)
            expect.equal(outcome, 'deadline')
            expect.equal(session.wait(small)['length'], 4096)
            expect.equal(memory[SIZE:SIZE + 4096], b's' * 4096)

    late.attempts(stage, once)


def test_daemon_killed(stage):
    """The daemon is killed in mid-bytes: nothing lands once its process is gone"""
    store_value(stage)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            session.start_get(session.register(memory), 0, SIZE, 'value')
            late.wait_for_bytes(memory)
            stage.daemon.process.signal(signal.SIGKILL)
            expect.holds(select.select([session.pidfd], [], [], 60)[0], 'the daemon\'s pidfd is not readable')
            late.watch(memory, stage.valkey)

    late.attempts(stage, once)


tap.run(globals(), Stage(module_options={'chunk-size': SIZE}))
