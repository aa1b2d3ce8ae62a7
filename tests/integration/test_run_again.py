"""What the daemon runs again by itself, and what it never does: a set that may have run."""
from lib import expect, late, tap, wait
from lib.memory import noise
from lib.session import Session
from lib.stage import Stage

SIZE = 300_000
ATTEMPTS = 4  # daemon/transfer/again.h


def ready(stage):
    stage.valkey.store('value', noise(SIZE))
    memory, session = stage.memory(SIZE), stage.session()
    return memory, session, session.register(memory)


def asked(stage, method):
    """An answer of the admin socket."""
    with Session(stage.daemon.admin_path, hello=False) as operator:
        return operator.call(method)


def run_again(stage):
    return asked(stage, 'status')['transfers']['run_again']


def test_get_that_failed(stage):
    """One operation of a get fails: the next attempt brings the value; with retry false the error comes"""
    memory, session, region = ready(stage)
    before = run_again(stage)
    with stage.valkey.faults(test_fail_operation=1):
        expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)
    expect.same_bytes(memory[:], noise(SIZE), 'value')
    expect.equal(run_again(stage), before + 1)
    with stage.valkey.faults(test_fail_operation=1):
        with expect.error('server_error') as failed:
            session.get(region, 0, SIZE, 'value', retry=False)
    expect.equal((failed.raised.data['outcome'], failed.raised.data.get('attempts')),
                 ('failed and maybe running', None))
    expect.equal(run_again(stage), before + 1)


def test_set_that_was_not_stored(stage):
    """The server says that it could not read a set's bytes: the next attempt stores them"""
    memory, session, region = ready(stage)
    memory[:] = noise(SIZE)[::-1]
    before = run_again(stage)
    with stage.valkey.faults(test_fail_operation=1):
        session.set(region, 0, SIZE, 'stored')
    expect.same_bytes(stage.valkey.value('stored'), noise(SIZE)[::-1], 'stored')
    expect.equal(run_again(stage), before + 1)


def test_last_attempt(stage):
    """Every attempt fails: the answer is that of the last, and says how many there were"""
    _, session, region = ready(stage)
    with stage.valkey.faults(test_drop_before_reply='yes'):
        writes = stage.valkey.info('rdma_writes_total')
        with expect.error('lost') as lost:
            session.get(region, 0, SIZE, 'value')
        expect.equal(stage.valkey.info('rdma_writes_total') - writes, ATTEMPTS)
    expect.equal(lost.raised.data.get('attempts'), ATTEMPTS)
    expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)


def test_set_that_may_have_run(stage):
    """A set's answer is lost: it was stored once, is not sent again, and the error says that it may have run"""
    memory, session, region = ready(stage)
    with stage.valkey.faults(test_drop_before_reply='yes'):
        reads = stage.valkey.info('rdma_reads_total')
        with expect.error('lost') as lost:
            session.set(region, 0, SIZE, 'once')
        expect.equal(stage.valkey.info('rdma_reads_total') - reads, 1)
    expect.equal(lost.raised.data.get('may_have_run'), True)
    expect.same_bytes(stage.valkey.value('once'), memory[:], 'once')


def test_deadline_over_attempts(stage):
    """A deadline counts over all attempts, and ends a get that waits for the next one"""
    _, session, region = ready(stage)
    # About 25 ms an attempt and 50, 100 ms between: the deadline falls behind the second or third.
    with stage.valkey.faults(test_delay_before_reply_ms=20, test_drop_before_reply='yes'):
        with expect.error('deadline') as deadline:
            session.get(region, 0, SIZE, 'value', deadline_ms=130)
    expect.holds(deadline.raised.data.get('attempts', 1) < ATTEMPTS, deadline.raised)
    expect.equal(deadline.raised.data['outcome'].split(',')[0], 'deadline')


def test_cancel_between_attempts(stage):
    """A cancel while a get waits for its next attempt: answered at once, and the window is free"""
    _, session, region = ready(stage)

    def once(_):
        with stage.valkey.faults(test_drop_before_reply='yes'):
            number = session.start_get(region, 0, SIZE, 'value')
            wait.until(lambda: [t['state'] for t in asked(stage, 'transfers')['transfers']] == ['waiting']
                       or session.answered(number), 'it waits')
            cancelled, outcome = session.call('transfer.cancel', id=number)['cancelled'], session.outcome(number)
        told = session.answers[number]['error']['data']['outcome']
        if outcome == 'lost' or told == 'cancelled, sent':  # it waits for 50 ms, then 100: they were over
            raise late.NotInTheMiddle
        expect.equal((cancelled, outcome, told), (True, 'cancelled', 'cancelled, not sent'))

    late.attempts(stage, once)
    expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)


tap.run(globals(), Stage())
