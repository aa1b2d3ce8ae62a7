"""A registration, its end, or the end of an endpoint that takes for ever delays its own user only, and nobody for ever;
an end that fails quarantines the memory."""
from lib import expect, tap, wait
from lib.faulty_fabric import FaultyFabric
from lib.session import Session
from lib.stage import Stage
from lib.users import as_nobody

SIZE = 1 << 20
SLOW = 3 << 16  # bytes of the registration that the fault means; no other is as large
VALUE = b'v' * 5000


def faulty_daemon(stage):
    fabric = FaultyFabric(stage.new_folder())
    stage.valkey.store('value', VALUE)
    return fabric, stage.other_daemon(environment=fabric.environment)


def asked_operator(daemon, method):
    with Session(daemon.admin_path, hello=False) as operator:
        return operator.call(method)


def memory_status(daemon):
    return asked_operator(daemon, 'status')['memory']


def cancelled_get(stage, session, region, daemon, end):
    """Starts a get that the server answers too late, calls end() when it is sent, and cancels it; its number."""
    with stage.valkey.faults(test_delay_before_reply_ms=20_000):
        number = session.start_get(region, 0, SIZE, 'value')
        wait.until(lambda: [entry['state'] for entry in asked_operator(daemon, 'transfers')['transfers']] == ['sent'],
                   'the command is sent')
    end()
    session.call('transfer.cancel', id=number)
    return number


def stays_served(stage, daemon):
    """A user registers, moves values, gives memory back and leaves."""
    with stage.session(daemon) as session, stage.memory(SIZE) as memory:
        for round_number in range(5):
            region = session.register(memory)
            expect.equal(session.get(region, 0, SIZE, 'value')['length'], len(VALUE))
            session.set(region, SIZE // 2, 5000, f'stored{round_number}')
            expect.equal(session.call('region.close', region=region)['memory_released'], True)


def others_are_served(stage, daemon):
    """Another user, and other sessions of this one."""
    as_nobody(lambda: stays_served(stage, daemon))
    stays_served(stage, daemon)


def test_registration(stage):
    """While a registration hangs, others register and move values; afterwards it is there"""
    fabric, daemon = faulty_daemon(stage)
    session = stage.session(daemon)
    with stage.memory(SLOW) as memory:
        fabric.switch_on('hold-open', SLOW)
        asked = session.request('region.register', fds=[memory.fd], type='memfd', size=SLOW)
        fabric.wait_begun('hold-open', SLOW)
        others_are_served(stage, daemon)
        expect.equal(session.exists('value'), [True])
        expect.holds(not session.answered(asked), 'answered before it was registered')
        fabric.switch_off('hold-open', SLOW)
        region = session.wait(asked)['region']
        expect.equal(session.get(region, 0, SLOW, 'value')['length'], len(VALUE))


def test_client_dies_meanwhile(stage):
    """The client of a hanging registration leaves: others go on, and the memory is given up when the call returns"""
    fabric, daemon = faulty_daemon(stage)
    with stage.memory(SLOW) as memory, stage.session(daemon) as other:
        fabric.switch_on('hold-open', SLOW)
        session = stage.session(daemon)
        session.request('region.register', fds=[memory.fd], type='memfd', size=SLOW)
        fabric.wait_begun('hold-open', SLOW)
        session.close()
        others_are_served(stage, daemon)
        expect.holds(memory_status(daemon)['pinned_bytes'] >= SLOW, 'what is being registered is charged')
        fabric.switch_off('hold-open', SLOW)
        wait.until(lambda: other.call('status')['memory']['arenas'] == 0, 'the arena is gone')
        expect.equal(other.call('status')['memory']['pinned_bytes'], 0)
        wait.until(lambda: daemon.holds_nothing_of(memory.name), 'the memory is given up')


def test_end_of_a_registration(stage):
    """While the end of a registration hangs, others go on; the answer to region.close waits for it"""
    fabric, daemon = faulty_daemon(stage)
    session = stage.session(daemon)
    with stage.memory(SLOW) as memory:
        region = session.register(memory)
        session.get(region, 0, SLOW, 'value')  # a lane has it registered
        fabric.switch_on('hold-close', SLOW)
        asked = session.request('region.close', region=region)
        fabric.wait_begun('hold-close', SLOW)
        others_are_served(stage, daemon)
        expect.holds(not session.answered(asked), 'answered while the registration is there')
        expect.holds(memory_status(daemon)['pinned_bytes'] >= SLOW, 'it is charged until its end')
        fabric.switch_off('hold-close', SLOW)
        expect.equal(session.wait(asked)['memory_released'], True)


def test_end_of_an_endpoint(stage):
    """While the end of a cancelled transfer's endpoint hangs, others go on; its answer waits"""
    fabric, daemon = faulty_daemon(stage)
    session = stage.session(daemon)
    with stage.memory(SIZE) as memory:
        region = session.register(memory)
        asked = cancelled_get(stage, session, region, daemon, lambda: fabric.switch_on('hold-endpoint'))
        fabric.wait_begun('hold-endpoint')
        others_are_served(stage, daemon)
        expect.holds(not session.answered(asked), 'answered while the endpoint is there')
        fabric.switch_off('hold-endpoint')
        with expect.error('cancelled'):
            session.wait(asked)


def test_failing_end_of_a_registration(stage):
    """An end that fails: the answer says that the memory is not released; it stays mapped, charged, and in status"""
    fabric, daemon = faulty_daemon(stage)
    session = stage.session(daemon)
    with stage.memory(SLOW) as memory:
        region = session.register(memory)
        session.get(region, 0, SLOW, 'value')
        fabric.switch_on('fail-close', SLOW)
        expect.equal(session.call('region.close', region=region)['memory_released'], False)
        session.close()
        status = memory_status(daemon)
        expect.equal((status['quarantined_bytes'], status['quarantined_arenas'], status['pinned_bytes']),
                     (SLOW, 1, SLOW), str(status))
        expect.holds(not daemon.holds_nothing_of(memory.name), 'it stays mapped')
        others_are_served(stage, daemon)
    expect.equal(daemon.stop(), 75)


def test_failing_end_of_an_endpoint(stage):
    """So it is with the memory of a transfer whose endpoint did not close: its answer comes, the memory is quarantined"""
    fabric, daemon = faulty_daemon(stage)
    session = stage.session(daemon)
    with stage.memory(SIZE) as memory:
        region = session.register(memory)
        asked = cancelled_get(stage, session, region, daemon, lambda: fabric.switch_on('fail-endpoint'))
        with expect.error('cancelled'):
            session.wait(asked)
        fabric.switch_off('fail-endpoint')
        expect.equal(session.call('region.close', region=region)['memory_released'], False)
        expect.equal(memory_status(daemon)['quarantined_bytes'], SIZE)
        others_are_served(stage, daemon)
    expect.equal(daemon.stop(), 75)


tap.run(globals(), Stage())
