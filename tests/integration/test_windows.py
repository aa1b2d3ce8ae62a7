"""Several transfers of one memory at once: disjoint windows run, an overlap with a writer is refused."""
import os

from lib import expect, tap, wait
from lib.stage import Stage
from lib.users import NOBODY

SIZE = 1 << 20


class Held:
    """Transfers that stay in the server for so long that what comes meanwhile meets them."""

    def __init__(self, stage, milliseconds=1000):
        self.server = stage.valkey
        self.milliseconds = milliseconds

    def __enter__(self):
        self.faults = self.server.faults(test_delay_before_reply_ms=self.milliseconds)
        self.faults.__enter__()
        return self

    def __exit__(self, *_):
        self.faults.__exit__()

    def running(self, count):
        wait.until(lambda: self.server.info('transfers') >= count,
                   lambda: f'{count} transfers at once, {self.server.info("transfers")} are')


def ready(stage):
    stage.valkey.store('value', b'v' * 1000)
    memory = stage.memory(SIZE, fill=1)
    session = stage.session()
    return memory, session, session.register(memory)


def test_disjoint_windows_run_at_once(stage):
    """Disjoint windows of one region run at once"""
    _, session, region = ready(stage)
    with Held(stage, 3000) as held:  # the connections are made, too
        numbers = [session.start_get(region, at * 1000, 1000, 'value') for at in range(4)]
        numbers += [session.start_set(region, 500_000 + at * 1000, 1000, f'key {at}') for at in range(4)]
        held.running(8)
        for number in numbers:
            session.wait(number)


def test_readers_share(stage):
    """Two sets may read the same window at once"""
    _, session, region = ready(stage)
    with Held(stage, 3000) as held:
        numbers = [session.start_set(region, 0, 1000, f'key {n}') for n in range(2)]
        held.running(2)
        for number in numbers:
            session.wait(number)


def check_overlap(first, second):
    """`second` is refused while `first` runs, and accepted after it."""
    session, start = first
    other, start_other = second
    number = start()
    session.call('status')  # it has been read: of two sessions either could be the first
    expect.equal(other.outcome(start_other()), 'overlap')
    session.wait(number)
    other.wait(start_other())


def test_overlap_with_a_writer(stage):
    """A window that overlaps a running get is refused, by one byte too, and free after the answer"""
    _, session, region = ready(stage)
    with Held(stage):
        check_overlap((session, lambda: session.start_get(region, 5000, 1000, 'value')),
                      (session, lambda: session.start_get(region, 5999, 1000, 'value')))
        check_overlap((session, lambda: session.start_get(region, 5000, 1000, 'value')),
                      (session, lambda: session.start_set(region, 4001, 1000, 'key')))
        check_overlap((session, lambda: session.start_set(region, 5000, 1000, 'key')),
                      (session, lambda: session.start_get(region, 5500, 1000, 'value')))


def test_windows_that_touch(stage):
    """Windows that touch do not overlap"""
    _, session, region = ready(stage)
    with Held(stage):
        numbers = [session.start_get(region, 5000, 1000, 'value'), session.start_get(region, 6000, 1000, 'value'),
                   session.start_get(region, 4000, 1000, 'value')]
        for number in numbers:
            session.wait(number)


def test_overlap_between_sessions(stage):
    """Overlap is seen across two sessions of one user on the same memory, in offsets of the file"""
    memory, session, region = ready(stage)
    with stage.session() as other:
        theirs = other.register(memory, offset=4096)
        with Held(stage):
            check_overlap((session, lambda: session.start_get(region, 5000, 1000, 'value')),
                          (other, lambda: other.start_get(theirs, 5000 - 4096 + 999, 1000, 'value')))
        with Held(stage, 3000) as held:
            numbers = [session.start_get(region, 5000, 1000, 'value')]
            number = other.start_get(theirs, 5000, 1000, 'value')  # 9096 of the file
            held.running(2)
            session.wait(numbers[0])
            other.wait(number)


def test_two_regions_of_one_file(stage):
    """Two regions of one session on the same memory are the same memory"""
    memory, session, region = ready(stage)
    again = session.register(memory)
    with Held(stage):
        check_overlap((session, lambda: session.start_get(region, 0, 1000, 'value')),
                      (session, lambda: session.start_get(again, 999, 1000, 'value')))


def test_shared_registration(stage):
    """A second session with the same memory shares the registration: one mapping"""
    memory, session, _ = ready(stage)
    before = len(stage.daemon.mappings(memory.name))
    with stage.session() as other:
        result = other.call('region.register', fds=(memory.fd,), type='memfd', size=SIZE)
        expect.equal(result['shared'], True, 'shared')
        expect.equal(len(stage.daemon.mappings(memory.name)), before, 'mappings')
        other.call('region.close', region=result['region'])
    expect.equal(session.get(1, 0, 1000, 'value')['found'], True)


def test_window_is_free_after_an_error(stage):
    """A window is free again after a failed transfer"""
    _, session, region = ready(stage)
    with stage.valkey.faults(test_drop_before_reply='yes'):
        expect.equal(session.outcome(session.start_get(region, 0, 1000, 'value', retry=False)), 'lost')
    session.get(region, 0, 1000, 'value')


def test_users_do_not_block_each_other(stage):
    """Windows of different users on one file are not compared: one cannot lock another's memory"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    memory, session, region = ready(stage)
    os.seteuid(NOBODY)
    try:
        other = stage.session()
    finally:
        os.seteuid(0)
    theirs = other.register(memory)
    with Held(stage) as held:
        first = session.start_get(region, 0, 1000, 'value')
        held.running(1)
        second = other.start_get(theirs, 0, 1000, 'value')
        session.wait(first)
        other.wait(second)


tap.run(globals(), Stage(daemon_config={'valkey.connections': 8}))
