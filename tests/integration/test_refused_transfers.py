"""Transfers that are answered with a reason, and change nothing."""
from lib import expect, tap
from lib.memory import noise
from lib.stage import Stage

SIZE = 1 << 20
MARK = 0xA5


def ready(stage):
    memory = stage.memory(SIZE, fill=MARK)
    session = stage.session()
    return memory, session, session.register(memory)


def test_missing_key(stage):
    """get of a missing key: not found, nothing written"""
    memory, session, region = ready(stage)
    got = session.get(region, 0, SIZE, 'nothing here')
    expect.equal((got['found'], got['length']), (False, 0))
    expect.holds(memory.holds(MARK), 'the window changed')


def test_get_of_another_type(stage):
    """get of a key of another type: wrong_type, nothing written"""
    stage.valkey.call('SET', 'text', 'x')
    memory, session, region = ready(stage)
    with expect.error('wrong_type'):
        session.get(region, 0, SIZE, 'text')
    expect.holds(memory.holds(MARK), 'the window changed')


def test_set_over_another_type(stage):
    """set of a key of another type: wrong_type, the key keeps its value"""
    stage.valkey.call('SET', 'text', 'kept')
    _, session, region = ready(stage)
    with expect.error('wrong_type'):
        session.set(region, 0, 100, 'text')
    expect.equal(stage.valkey.call('GET', 'text'), b'kept')


def test_window_too_small(stage):
    """get into a window smaller than the value: the needed length, nothing written"""
    stage.valkey.store('large', noise(100_000))
    memory, session, region = ready(stage)
    with expect.error('need_larger_window') as refused:
        session.get(region, 0, 99_999, 'large')
    expect.equal(refused.raised.data.get('need'), 100_000, 'need')
    expect.holds(memory.holds(MARK), 'the window changed')
    expect.equal(session.get(region, 0, 100_000, 'large')['length'], 100_000)


def test_too_large_for_the_server(stage):
    """set of a value larger than the server takes: too_large with the server's words, nothing stored"""
    _, session, region = ready(stage)
    with stage.valkey.faults(max_object_size=1000):
        with expect.error('too_large', 'server_error') as refused:
            session.set(region, 0, 1001, 'too large')
        expect.holds('max object size' in refused.raised.message, refused.raised)
        session.set(region, 0, 1000, 'fits')
    expect.equal(stage.valkey.call('EXISTS', 'too large'), 0)


def test_out_of_range(stage):
    """Windows outside the region are refused"""
    _, session, region = ready(stage)
    for offset, length in ((0, SIZE + 1), (SIZE, 1), (SIZE - 1, 2), (2**53 - 1, 2**53 - 1), (2**53 - 1, 1)):
        for start in (session.start_set, session.start_get):
            with expect.error('out_of_range'):
                session.wait(start(region, offset, length, 'key'))


def test_empty_window(stage):
    """A window of no bytes is refused"""
    _, session, region = ready(stage)
    with expect.error('invalid_params'):
        session.set(region, 0, 0, 'key')


def test_no_region(stage):
    """A region that was never registered, or is closed, is refused"""
    _, session, region = ready(stage)
    with expect.error('no_region'):
        session.get(region + 1, 0, 10, 'key')
    session.call('region.close', region=region)
    with expect.error('no_region'):
        session.get(region, 0, 10, 'key')


def test_read_only_region(stage):
    """get into a region that is registered for reading only: denied; set works"""
    with stage.memory(SIZE, fill=7) as memory, stage.session() as session:
        region = session.register(memory, access='r')
        stage.valkey.store('value', b'v')
        with expect.error('denied'):
            session.get(region, 0, 10, 'value')
        session.set(region, 0, 10, 'from read only')
        expect.equal(stage.valkey.value('from read only'), b'\x07' * 10)
        expect.holds(memory.holds(7), 'read-only memory changed')


def test_errors_of_the_server_pass_through(stage):
    """An error that the server answers comes with its words, and the connection goes on"""
    _, session, region = ready(stage)
    for text in ('OOM command not allowed when used memory > \'maxmemory\'.', 'NOREPLICAS too few',
                 'MISCONF cannot persist', 'ERR never seen before'):
        with stage.valkey.faults(test_answer_error=text, test_answer_error_count=1):
            with expect.error('server_error', 'busy', 'server_down') as refused:
                session.set(region, 0, 100, 'key')
            expect.holds(text.split(' ', 1)[1] in refused.raised.message, refused.raised)
        session.set(region, 0, 100, 'key')


def test_refusals_that_pass(stage):
    """What the server refuses for now, without running it, is sent again until it is accepted; sets too"""
    _, session, region = ready(stage)
    for text in ('LOADING still loading', 'TRYAGAIN in a moment', 'BUSY with a script', 'READONLY no writes here',
                 'MASTERDOWN no link', 'CLUSTERDOWN no quorum', 'ERR disk staging buffer pool exhausted; retry later'):
        stage.valkey.call('DEL', 'key')
        with stage.valkey.faults(test_answer_error=text, test_answer_error_count=2):
            session.set(region, 0, 100, 'key')
        expect.equal(session.get(region, 0, 100, 'key')['length'], 100, text)


def test_refusals_that_stay(stage):
    """A server that goes on refusing: the deadline ends it, and the error says how it was refused"""
    # The grace of the deadline is long: a busy host may be late with the answer to the last attempt.
    daemon = stage.other_daemon(config={'fabric.revoke_grace_ms': 30_000})
    with stage.memory(SIZE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.set(region, 0, 100, 'key')
        with stage.valkey.faults(test_answer_error='LOADING for ever', test_answer_error_count=1000):
            for deadline in (2000, 8000, 32_000):
                with expect.error('deadline', 'server_error') as refused:
                    session.set(region, 0, 100, 'key', deadline_ms=deadline)
                expect.holds('LOADING for ever' in refused.raised.message, refused.raised)
                expect.ended_by_deadline(refused.raised)
                if refused.raised.data['attempts'] >= 4:
                    break
        expect.holds(refused.raised.data['attempts'] >= 4, refused.raised.data)
        session.set(region, 0, 100, 'key')


def test_cluster_behind_an_address(stage):
    """Of a single server no redirection is followed; the error says what to configure"""
    _, session, region = ready(stage)
    with stage.valkey.faults(test_answer_error='MOVED 5 127.0.0.1:7000', test_answer_error_count=1):
        with expect.error('server_error') as refused:
            session.set(region, 0, 100, 'key')
        expect.holds('[valkey] seeds' in refused.raised.message, refused.raised)


def test_memory_full(stage):
    """The server is out of memory: an error, and later it works"""
    _, session, region = ready(stage)
    stage.valkey.call('CONFIG', 'SET', 'maxmemory', '1')
    try:
        with expect.error('server_error') as refused:
            session.set(region, 0, 100, 'oom')
        expect.holds('OOM' in refused.raised.message or 'maxmemory' in refused.raised.message, refused.raised)
    finally:
        stage.valkey.call('CONFIG', 'SET', 'maxmemory', '0')
    session.set(region, 0, 100, 'oom')


def test_replies_that_cannot_be_true(stage):
    """Replies of a wrong form, or that cannot be true, are errors; the daemon lives and goes on"""
    stage.valkey.store('value', b'v' * 1000)
    _, session, region = ready(stage)
    for shape in range(1, 7):
        with stage.valkey.faults(test_get_reply=shape):
            with expect.error('server_error', 'lost', 'checksum_mismatch'):
                session.get(region, 0, SIZE, 'value')
        expect.equal(session.get(region, 0, SIZE, 'value')['length'], 1000)
    for shape in range(1, 5):
        with stage.valkey.faults(test_set_reply=shape):
            with expect.error('server_error', 'lost'):
                session.set(region, 0, 100, 'other')
        session.set(region, 0, 100, 'other')
    expect.holds(stage.daemon.alive(), 'the daemon ended')


def check_refused_session(stage, *words, **faults):
    server = stage.other_valkey()
    daemon = stage.other_daemon(server, config={'valkey.connections': 1})
    with stage.memory(SIZE) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        with server.faults(**faults):
            with expect.error('not_usable', 'server_error', 'server_down') as refused:
                session.set(region, 0, 10, 'key')
            for word in words:
                expect.holds(word in refused.raised.message, refused.raised)
        session.wait_until_sets_work(region, length=10)
    expect.holds(daemon.alive(), 'the daemon ended')


def test_refused_session(stage):
    """A server that refuses a BLOB session: an error with its words, and later it works"""
    check_refused_session(stage, 'refused by test switch', test_refuse_hello=1000)


def test_garbage_for_a_session(stage):
    """A server that answers garbage when a BLOB session is made: an error, and later it works"""
    for garbage in range(1, 5):
        check_refused_session(stage, test_hello_garbage=garbage)


def test_a_failed_operation(stage):
    """One operation of a transfer fails: an error, and the next transfer works"""
    stage.valkey.store('value', noise(SIZE))
    memory, session, region = ready(stage)
    with stage.valkey.faults(test_fail_operation=1):
        with expect.error('server_error', 'lost'):
            session.get(region, 0, SIZE, 'value', retry=False)
    session.get(region, 0, SIZE, 'value')
    expect.same_bytes(memory[:], noise(SIZE), 'value')


tap.run(globals(), Stage())
