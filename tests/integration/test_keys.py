"""keys.exists, keys.delete and keys.info, which need neither fabric nor module."""
from lib import expect, tap, wait
from lib.stage import Stage

NAMES = ['text', 'schlüssel', b'\xff\x00binary', 'absent']


def test_exists(stage):
    """keys.exists: one entry a key, in order, for values of any type"""
    stage.valkey.call('SET', 'text', 'x')
    stage.valkey.store('schlüssel', b'y')
    stage.valkey.store(b'\xff\x00binary', b'z')
    with stage.session() as session:
        expect.equal(session.exists(*NAMES), [True, True, True, False])
        expect.equal(session.exists('absent', 'text', 'absent'), [False, True, False])


def test_delete(stage):
    """keys.delete tells which keys were there, and they are gone"""
    stage.valkey.call('SET', 'text', 'x')
    stage.valkey.store('large', b'y')
    with stage.session() as session:
        expect.equal(session.delete('text', 'absent', 'large'), [True, False, True])
        expect.equal(session.delete('text', 'large'), [False, False])
    expect.equal(stage.valkey.call('EXISTS', 'text', 'large'), 0)


def test_info(stage):
    """keys.info: length and checksum of values"""
    stage.valkey.store('large', b'123456789')
    with stage.session() as session:
        there, absent = session.keys('keys.info', 'large', 'absent')
        expect.equal((there['found'], there['length'], there['crc32c']), (True, 9, 0xE3069283))
        expect.equal(absent['found'], False)


def test_info_of_another_type(stage):
    """keys.info of a key of another type says so for that key alone"""
    stage.valkey.call('SET', 'text', 'x')
    stage.valkey.store('large', b'y')
    with stage.session() as session:
        other, large = session.keys('keys.info', 'text', 'large')
        expect.equal(other['error']['name'], 'wrong_type')
        expect.equal(large['length'], 1)


def test_many_keys(stage):
    """256 keys in one request pass, 257 are refused"""
    stage.valkey.call('SET', 'k255', 'x')
    with stage.session() as session:
        expect.equal(session.exists(*[f'k{n}' for n in range(256)]), [False] * 255 + [True])
        for keys in ([f'k{n}' for n in range(257)], []):
            with expect.error('invalid_params') as refused:
                session.call('keys.exists', keys=keys)
            expect.holds('256' in refused.raised.message, refused.raised)


def test_transfers_do_not_delay_keys(stage):
    """keys.* are answered while every connection carries a transfer"""
    with stage.memory(1 << 20) as memory, stage.session() as session:
        region = session.register(memory)
        stage.valkey.store('value', b'v')
        with stage.valkey.faults(test_delay_before_reply_ms=5000):
            numbers = [session.start_get(region, at * 100, 100, 'value') for at in range(20)]
            wait.until(lambda: stage.valkey.info('transfers') > 0, 'a transfer runs')
            expect.equal(session.exists('value'), [True])
            expect.holds(not session.answered(numbers[0]), 'the transfer should still have been running')
        for number in numbers:
            session.wait(number)


def test_keys_survive_a_server_restart(stage):
    """keys.* work again after a restart of the server"""
    with stage.session() as session:
        expect.equal(session.exists('x'), [False])
        stage.valkey.restart()
        stage.valkey.call('SET', 'x', '1')

        def answered():
            return session.keys('keys.exists', 'x') == [{'exists': True}]

        wait.until(answered, 'keys.exists works after the restart', pause=0.02)


tap.run(globals(), Stage())
