"""Once a set is over, whatever ended it, the server reads no byte of its window any more."""
from lib import expect, late, tap
from lib.memory import MIB
from lib.stage import Stage

SIZE = 128 * MIB
SECRET = 0x99
VALUE = 0x5A
TIMINGS_MS = (5, 10, 2, 15, 20, 1, 8, 25, 30, 12)


def check_no_secret(stage, key):
    """A value that the server stored after all holds nothing that was written after the answer."""
    stage.valkey.wait_idle()
    value = stage.valkey.value(key)
    if value is not None:
        expect.equal(value.count(SECRET), 0, 'bytes stored that were written after the answer')
        expect.equal((len(value), value.count(VALUE)), (SIZE, SIZE), 'value')


def test_deadline(stage):
    """A deadline passes in mid-bytes: what is written later is not read"""
    def once(_):
        with stage.memory(SIZE, fill=VALUE) as memory, stage.session() as session:
            number = session.start_set(session.register(memory), 0, SIZE, 'deadline', deadline_ms=3000)
            late.freeze_in_a_read(stage.valkey, stage.daemon, lambda: session.answered(number))
            with expect.error('deadline') as passed:
                session.wait(number)
            expect.equal(passed.raised.data.get('may_have_run'), True, 'may_have_run')
            memory.fill(SECRET)
            stage.valkey.process.thaw()
            check_no_secret(stage, 'deadline')

    late.attempts(stage, once)


def answered(stage, faults, name):
    def once(attempt):
        errors = stage.valkey.info('rdma_read_errors')
        with stage.memory(SIZE, fill=VALUE) as memory, stage.session() as session:
            with stage.valkey.faults(test_error_delay_ms=TIMINGS_MS[attempt % len(TIMINGS_MS)], **faults):
                number = session.start_set(session.register(memory), 0, SIZE, name)
                with expect.error(name):
                    session.wait(number)
            memory.fill(SECRET)
            check_no_secret(stage, name)
        if stage.valkey.info('rdma_read_errors') == errors:
            raise late.NotInTheMiddle  # the server had read everything

    late.attempts(stage, once)


def test_connection_dropped(stage):
    """The server drops the connection in mid-bytes and goes on reading: what is written later is not read"""
    answered(stage, {'test_drop_while_running': 'yes'}, 'lost')


def test_error_answered(stage):
    """The server answers an error in mid-bytes and goes on reading: what is written later is not stored"""
    answered(stage, {'test_error_while_running': 'yes'}, 'server_error')


def test_command_held_by_the_server(stage):
    """A command that the server holds back runs after the deadline: it reads nothing"""
    with stage.memory(SIZE, fill=VALUE) as memory, stage.session() as session:
        region = session.register(memory)
        session.set(region, 0, 4096, 'warm up')
        with stage.valkey.faults(test_delay_before_transfer_ms=4000):
            expect.equal(session.outcome(session.start_set(region, 0, SIZE, 'held', deadline_ms=300)), 'deadline')
            memory.fill(SECRET)
            check_no_secret(stage, 'held')
        expect.equal(stage.valkey.call('EXISTS', 'held'), 0, 'the value is stored')


tap.run(globals(), Stage(module_options={'chunk-size': SIZE}))
