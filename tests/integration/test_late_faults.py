"""Each fault switch of the module: once a transfer is answered, no byte of its window changes, whatever it does."""
import pathlib
import re

from lib import expect, tap
from lib.late import ORIGINAL, REUSED, VALUE, NotInTheMiddle, attempts
from lib.memory import MIB
from lib.stage import Stage

SIZE = 6 * MIB
CHUNK = MIB
SWITCHES = pathlib.Path(__file__).parent.parent / 'largeobj' / 'README.md'

# A chunk each 150 ms: the server has most of them still to write when it answers, or when the deadline is over, however
# late the daemon gets its processor.
SLOW = {'test_delay_between_chunks_ms': 150}

# Name: switches, parameters of the get, how it ends.
ANSWERED_EARLY = {
    'a pause before the transfer': ({'test_delay_before_transfer_ms': 1500}, {'deadline_ms': 100}, 'deadline'),
    'pauses between chunks': (SLOW, {'deadline_ms': 100}, 'deadline'),
    'an error while bytes move': ({**SLOW, 'test_error_while_running': 'yes'}, {}, 'server_error'),
    'the connection dropped while bytes move': ({**SLOW, 'test_drop_while_running': 'yes'}, {}, 'lost'),
    'an error after some bytes': (
        {**SLOW, 'test_error_while_running': 'yes', 'test_error_after_bytes': 2 * MIB}, {}, 'server_error'),
    'an error some time later': (
        {**SLOW, 'test_error_while_running': 'yes', 'test_error_delay_ms': 90}, {}, 'server_error'),
    'pieces in random order': (
        {**SLOW, 'test_error_while_running': 'yes', 'test_shuffle': 'yes'}, {}, 'server_error'),
}
ANSWERED_LATE = {
    'a pause before the reply': ({'test_delay_before_reply_ms': 1500}, {'deadline_ms': 100}, 'deadline'),
    'an operation that fails': ({'test_fail_operation': 2}, {}, 'server_error'),
    'the connection dropped before the reply': ({'test_drop_before_reply': 'yes'}, {}, 'lost'),
    'no answer': ({'test_never_answer': 'yes'}, {'deadline_ms': 100}, 'deadline'),
    'a wrong checksum': ({'test_wrong_crc': 'yes'}, {}, 'ok'),
    'null': ({'test_get_null': 'yes'}, {}, 'ok'),
    'an error of the server itself': (
        {'test_answer_error': 'MOVED 1 10.0.0.1:7000', 'test_answer_error_count': 1}, {}, 'server_error'),
    **{f'reply {form} of the wrong form': ({'test_get_reply': form}, {}, 'server_error') for form in range(1, 7)},
}
SET_REPLIES = range(1, 5)
HELLOS = [{'test_refuse_hello': 100}, *({'test_hello_garbage': form} for form in range(1, 5))]


def reused(memory, stage, name):
    """The window is its owner's: nothing may change in it while the server goes on to the end of what it does."""
    memory.fill(REUSED)
    stage.valkey.wait_idle()
    if not memory.holds(REUSED):
        raise AssertionError(f'{name}: late bytes: {memory.pages_not(REUSED, 0, SIZE)} pages changed after the answer')


def get_under(stage, name, faults, params, ends, early):
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            region = session.register(memory)
            session.get(region, 0, SIZE, 'value')  # the lane is there
            memory.fill(ORIGINAL)
            with stage.valkey.faults(**faults):
                number = session.start_get(region, 0, SIZE, 'value', retry=False, **params)
                outcome = session.outcome(number)
                if 'deadline_ms' in params and outcome == 'ok' or early and memory.holds(VALUE):
                    raise NotInTheMiddle  # the daemon got no processor before the server had come to its end
                expect.equal(outcome, ends, name)
                reused(memory, stage, name)
            expect.equal(session.get(region, 0, SIZE, 'value')['length'], SIZE)
            expect.holds(memory.holds(VALUE), f'{name}: the region does not work any more')

    attempts(stage, once)


def test_answered_while_bytes_move(stage):
    """The answer comes while the server has bytes to write: none of them lands"""
    for name, (faults, params, ends) in ANSWERED_EARLY.items():
        get_under(stage, name, faults, params, ends, early=True)


def test_answered_at_the_end(stage):
    """The answer is wrong, late, or none: nothing lands after it"""
    for name, (faults, params, ends) in ANSWERED_LATE.items():
        get_under(stage, name, faults, params, ends, early=False)


def test_sets(stage):
    """A set whose reply is of the wrong form: its window stays as its owner fills it, and the value is whole"""
    with stage.memory(SIZE) as memory, stage.session() as session:
        region = session.register(memory)
        for form in SET_REPLIES:
            memory.fill(VALUE)
            with stage.valkey.faults(test_set_reply=form):
                expect.equal(session.outcome(session.start_set(region, 0, SIZE, 'set')), 'server_error')
                reused(memory, stage, f'reply {form}')
            expect.holds(stage.valkey.value('set') == bytes([VALUE]) * SIZE, f'reply {form}: the value is torn')


def test_no_session(stage):
    """No session can be made: the get is answered, and nothing lands"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)
    for faults in HELLOS:
        daemon = stage.other_daemon()
        with stage.valkey.faults(**faults), stage.memory(SIZE, fill=ORIGINAL) as memory, \
                stage.session(daemon) as session:
            region = session.register(memory)
            with expect.error('not_usable', 'server_down'):
                session.get(region, 0, SIZE, 'value')
            expect.holds(memory.holds(ORIGINAL), f'{faults}: bytes without a session')
            reused(memory, stage, faults)
        stage.end(daemon)


def test_every_switch(_):
    """The tests above use each switch that the module has"""
    used = [faults for faults, *_ in [*ANSWERED_EARLY.values(), *ANSWERED_LATE.values()]] + HELLOS
    names = {name.replace('_', '-') for faults in used for name in faults} | {'test-set-reply'}
    there = set(re.findall(r'^\| `(test-[a-z-]+)`', SWITCHES.read_text(encoding='utf-8'), re.MULTILINE))
    expect.equal(sorted(names), sorted(there - {'test-journal'}))  # which only writes down what is stored


tap.run(globals(), Stage(module_options={'chunk-size': CHUNK}))
