"""Requests that make no sense: an error that says what came and what is allowed, and then the same connection works."""
import base64
import json

from lib import expect, tap
from lib.guard import SIZE, Guard
from lib.session import ANSWER_WITHIN, Session
from lib.stage import Stage

BIG = 2**53 - 1
CONFIG = {'valkey.connections': 1}
guards = {}


def guard_of(stage):
    if 'one' not in guards or not guards['one'].daemon.alive():
        guards['one'] = Guard(stage)
    return guards['one']


def ask(guard, method, **params):
    return guard.session.request(method, **params)


def raw(guard, template):
    """Sends a packet in which %d stands for an unused id; returns the id."""
    number = guard.session.next_id
    guard.session.next_id += 1
    packet = template if isinstance(template, bytes) else template.encode()
    guard.session.send_bytes(packet.replace(b'%d', str(number).encode()))
    return number


def test_windows(stage):
    """Zero, negative, overflowing and out-of-range windows, of get and set: the error names what is allowed"""
    guard = guard_of(stage)
    for method in ('transfer.get', 'transfer.set'):
        for offset, length, name, *words in (
                (0, 0, 'invalid_params', '"length"', 'from 1', 'the integer 0'),
                (0, -1, 'invalid_params', '"length"', 'the integer -1'),
                (-1, 10, 'invalid_params', '"offset"', 'the integer -1'),
                (0, BIG + 1, 'invalid_params', '"length"', BIG, BIG + 1),
                (-BIG, BIG, 'invalid_params', '"offset"'),
                (0, SIZE + 1, 'out_of_range', SIZE, SIZE + 1),
                (SIZE, 1, 'out_of_range', SIZE),
                (SIZE - 1, 2, 'out_of_range', SIZE),
                (BIG, 1, 'out_of_range', SIZE, BIG),
                (BIG, BIG, 'out_of_range', SIZE, BIG),
                (1, BIG, 'out_of_range', SIZE, BIG)):
            number = ask(guard, method, region=guard.region, offset=offset, length=length, key='k')
            error = guard.refuses(number, name, *words, what=f'{method} {offset} {length}')
            if name == 'out_of_range':
                expect.equal(error.data.get('capacity'), SIZE)
        number = raw(guard, '{"jsonrpc":"2.0","id":%d,"method":"' + method + '","params":{"region":1,"offset":0,'
                            '"length":18446744073709551616,"key":"k"}}')
        expect.equal(guard.session.wait_without_id().name, 'parse_error', 'an integer beyond 64 bits')
        guard.unharmed()


def test_keys_that_cannot_be(stage):
    """Empty keys, keys of more than 16 KiB, both forms, none, wrong base64; one of 16 KiB is good"""
    guard = guard_of(stage)
    window = {'region': guard.region, 'offset': 0, 'length': 10}
    longest = 'k' * 16384
    guard.session.set(guard.region, 0, 10, longest)
    expect.equal(guard.session.get(guard.region, 0, 10, longest)['found'], True)
    expect.equal(guard.session.delete(longest, b'\xff' * 16384), [True, False])
    for params, *words in (
            ({'key': ''}, '"key"', '1 to 16384', '0 bytes'),
            ({'key': 'k' * 16385}, '"key"', '16384', '16385'),
            ({'key': 'k' * 30000}, '"key"', '16384', '30000'),
            ({'key_b64': ''}, '"key_b64"'),
            ({'key_b64': base64.b64encode(b'k' * 16385).decode()}, '"key_b64"', '16384', '16385'),
            ({'key_b64': 'eA'}, '"key_b64"', 'base64'),
            ({'key_b64': 'e A='}, '"key_b64"', 'base64'),
            ({'key_b64': 'eB=='}, '"key_b64"'),
            ({'key': 'x', 'key_b64': 'eA=='}, '"key"', '"key_b64"', 'exactly one'),
            ({}, '"key"', '"key_b64"', 'missing'),
            ({'key': 7}, '"key"', 'the integer 7'),
            ({'key': None}, '"key"', 'null')):
        for method in ('transfer.get', 'transfer.set'):
            name = 'too_large' if '16385' in words or '30000' in words else 'invalid_params'
            guard.refuses(ask(guard, method, **window, **params), name, *words, what=str(params)[:80])
    for keys, *words in (([], '256'), (['k'] * 257, '256', '257'), ([''], '16384'), (['k' * 16385], '16385'), ([7], '7'),
                         ([None],), ([[]],), ([{}],), ([{'key': 'k'}],), ([{'key_b64': 'x'}], 'base64'),
                         ([{'key_b64': 'eA==', 'x': 1}],), ('k', 'array'), ({}, 'array')):
        for method in ('keys.exists', 'keys.delete', 'keys.info'):
            name = 'too_large' if '16385' in words else 'invalid_params'
            guard.refuses(ask(guard, method, keys=keys), name, 'key', *words, what=f'{method} {keys!r:.60}')


WRONG_TYPES = [1, -1, 1.5, 'x', True, None, [], {}]
MEMBERS = [
    ('transfer.get', {'region': 1, 'offset': 0, 'length': 10, 'key': 'k', 'deadline_ms': 5000}),
    ('transfer.set', {'region': 1, 'offset': 0, 'length': 10, 'key': 'k', 'crc32c': 5, 'ttl_ms': 5, 'deadline_ms': 5000}),
    ('region.close', {'region': 1, 'force': False}),
    ('region.register', {'type': 'memfd', 'size': 4096, 'offset': 0, 'access': 'rw', 'populate': False, 'label': 'l'}),
    ('keys.exists', {'keys': ['x']}),
    ('keys.expire', {'keys': ['x'], 'ttl_ms': 5}),
    ('transfer.cancel', {'id': 1}),
]


def test_wrong_types(stage):
    """Every parameter of every method with values of every other JSON type; the error names parameter and value"""
    guard = guard_of(stage)
    for method, good in MEMBERS:
        fds = (guard.memory.fd,) if method == 'region.register' else ()
        for name, value in good.items():
            for wrong in WRONG_TYPES:
                if type(wrong) is type(value) and wrong != -1:
                    continue
                number = guard.session.request(method, fds=fds, **{**good, name: wrong})
                error = wait_error(guard, number)
                guard.expect(error, 'invalid_params', f'"{name}"', what=f'{method} {name} = {wrong!r}')
    guard.unharmed()


def wait_error(guard, number):
    with expect.error('invalid_params', 'invalid_request') as error:
        guard.session.wait(number)
    return error.raised


def test_wrong_parameters(stage):
    """Unknown, missing and misspelt parameters, and unknown methods"""
    guard = guard_of(stage)
    for method, good in MEMBERS:
        fds = (guard.memory.fd,) if method == 'region.register' else ()
        number = guard.session.request(method, fds=fds, **good, surplus=1)
        guard.refuses(number, 'invalid_params', '"surplus"', 'allowed', what=method)
        number = guard.session.request(method, fds=fds)
        guard.refuses(number, 'invalid_params', 'missing', what=method)
    guard.refuses(ask(guard, 'status', verbose=True), 'invalid_params', '"verbose"', 'none')
    for method in ('', 'no.such', 'Status', 'status ', 'hello\n', 'transfers', 'x' * 1000):
        guard.refuses(ask(guard, method), 'method_not_found', 'client socket', what=method[:20])


def test_numbers(stage):
    """Floats and exponents where integers belong, integers beyond every limit"""
    guard = guard_of(stage)
    head = '{"jsonrpc":"2.0","id":%d,"method":"transfer.get","params":{"region":1,"offset":0,"key":"k","length":'
    for number, *words in (('4096.0', '4096', 'fraction'), ('1e3', '1000', 'exponent'), ('4096.5', 'fraction'),
                           ('-0', 'the integer 0'), ('9223372036854775807', '9223372036854775807')):
        guard.refuses(raw(guard, head + number + '}}'), 'invalid_params', '"length"', *words, what=number)
    for number in ('9223372036854775808', '1e400', '-9223372036854775809', '0x10', '01', '+1', 'NaN', '.5', '1.'):
        raw(guard, head + number + '}}')
        guard.expect(guard.session.wait_without_id(), 'parse_error', 'JSON', what=number)
    guard.unharmed()


def test_texts_of_json(stage):
    """No JSON, duplicate names, deep nesting, invalid UTF-8, U+0000, NUL bytes, a byte order mark"""
    guard = guard_of(stage)
    good = b'{"jsonrpc":"2.0","id":99999,"method":"keys.exists","params":{"keys":["%s"]}}'
    for packet, name, *words in (
            (b'{', 'parse_error', 'JSON'),
            (b' ', 'parse_error', 'JSON'),
            (b'nonsense', 'parse_error', 'JSON'),
            (b'\x00', 'parse_error', 'NUL'),
            (good + b'\x00', 'parse_error', 'NUL', len(good)),
            (good + b' {}', 'parse_error', 'JSON'),
            (b'\xef\xbb\xbf' + good, 'parse_error', 'JSON'),
            (good.replace(b'%s', b'\xff'), 'parse_error', 'UTF-8'),
            (good.replace(b'%s', b'\xc0\x80'), 'parse_error', 'UTF-8'),
            (good.replace(b'%s', b'\xed\xa0\x80'), 'parse_error', 'UTF-8'),
            (good.replace(b'%s', b'\\ud800'), 'parse_error', 'JSON'),
            (good.replace(b'%s', b'\\u0000'), 'parse_error', 'U+0000', 'key_b64'),
            (good.replace(b'%s', b'\n'), 'parse_error', 'JSON'),
            (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"status"}', 'parse_error', 'duplicate'),
            (good.replace(b'"keys":', b'"keys":["a"],"keys":'), 'parse_error', 'duplicate'),
            (b'[' * 65536, 'parse_error', 'depth'),
            (b'{"a":' * 10000 + b'1' + b'}' * 10000, 'parse_error', 'depth'),
            (b'[' * 2000 + b']' * 2000, 'invalid_request', 'batch'),
            (b'[]', 'invalid_request', 'batch'),
            (b'[%s]' % good, 'invalid_request', 'batch'),
            (b'"status"', 'invalid_request', 'object'),
            (b'7', 'invalid_request', 'object'),
            (b'null', 'invalid_request', 'object'),
            (b'{}', 'invalid_request', '"id"'),
            (b' ' * 65537, 'too_large', '65536'),
            (good.replace(b'%s', b'x' * 100_000), 'too_large', '65536')):
        guard.refuses_packet(packet, name, *words)


def test_ids(stage):
    """Ids that are missing, null, or no integer from 1 to 2^53-1; one that is in use"""
    guard = guard_of(stage)
    guard.refuses_packet(b'{"jsonrpc":"2.0","method":"status"}', 'invalid_request', '"id"', 'missing')
    for wrong in ('null', '0', '-1', '1.0', '1.5', '1e3', '"1"', 'true', '[]', '{}', str(2**53), str(2**63 - 1)):
        guard.refuses_packet(b'{"jsonrpc":"2.0","id":%s,"method":"status"}' % wrong.encode(), 'invalid_request', '"id"',
                             '2^53-1')
    stage.valkey.process.freeze()  # so that the first answer is that of the second request
    number = guard.session.start_set(guard.region, 0, 10, 'slow')
    guard.session.send({'jsonrpc': '2.0', 'id': number, 'method': 'status'})
    expect.equal(guard.session.outcome(number), 'invalid_request')
    refused = guard.session.answers.pop(number)['error']
    expect.holds(str(number) in refused['message'], refused)
    stage.valkey.process.thaw()
    guard.session.wait(number)
    guard.unharmed('an id in use')
    for number in (1, 2**53 - 1):
        guard.session.answers.pop(number, None)
        guard.session.send({'jsonrpc': '2.0', 'id': number, 'method': 'status'})
        guard.session.wait(number)


def test_members(stage):
    """Requests with a wrong version, without a method, with surplus members or params that are no object"""
    guard = guard_of(stage)
    for template, *words in (
            ('{"id":%d,"method":"status"}', '"jsonrpc"', 'missing'),
            ('{"jsonrpc":"1.0","id":%d,"method":"status"}', '"jsonrpc"', '"2.0"'),
            ('{"jsonrpc":2.0,"id":%d,"method":"status"}', '"jsonrpc"', '"2.0"'),
            ('{"jsonrpc":"2.0","id":%d}', '"method"', 'missing'),
            ('{"jsonrpc":"2.0","id":%d,"method":7}', '"method"', 'text'),
            ('{"jsonrpc":"2.0","id":%d,"method":null}', '"method"', 'text'),
            ('{"jsonrpc":"2.0","id":%d,"method":"status","params":[]}', '"params"', 'object'),
            ('{"jsonrpc":"2.0","id":%d,"method":"status","params":null}', '"params"', 'object'),
            ('{"jsonrpc":"2.0","id":%d,"method":"status","extra":1}', '"extra"', 'allowed'),
            ('{"jsonrpc":"2.0","id":%d,"result":{}}', '"method"')):
        guard.refuses(raw(guard, template), 'invalid_request', *words, what=template)


def test_hello(stage):
    """Calls before hello, hello twice, versions too new, too old and of wrong types"""
    guard = guard_of(stage)
    guard.refuses(ask(guard, 'hello', protocol=1), 'invalid_request', 'hello', 'already')
    other = Session(guard.daemon.path, hello=False)
    for method, params in (('status', {}), ('keys.exists', {'keys': ['x']}), ('region.close', {'region': 1})):
        with expect.error('invalid_request') as early:
            other.call(method, **params)
        expect.holds(method in early.raised.message and 'hello' in early.raised.message, early.raised)
    for protocol, *words in ((2, '2', '1'), (BIG, str(BIG)), (0, 'the integer 0'), (-1, '-1'), ('1', 'text'),
                             (1.0, 'fraction'), (None, 'null')):
        with expect.error('invalid_params') as refused:
            other.call('hello', protocol=protocol)
        for word in words:
            expect.holds(word in refused.raised.message, refused.raised)
        if protocol in (2, BIG):
            expect.equal((refused.raised.data['min'], refused.raised.data['max']), (1, 1))
    with expect.error('invalid_params') as long:
        other.call('hello', protocol=1, client='c' * 257)
    expect.holds('256' in long.raised.message, long.raised)
    other.call('hello', protocol=1, client='c' * 256)
    region = other.register(guard.memory)
    other.set(region, 0, 100, 'after all')
    expect.equal(other.get(region, 0, 100, 'after all')['found'], True)
    other.close()
    guard.unharmed('hello')


def test_window_too_small(stage):
    """A window smaller than the value: the error carries the needed size, and nothing was written"""
    guard = guard_of(stage)
    stage.valkey.store('large', b'v' * 100_000)
    guard.memory.fill(0xA5)
    for length in (1, 4096, 99_999):
        number = guard.session.start_get(guard.region, 0, length, 'large')
        with expect.error('need_larger_window') as small:
            guard.session.wait(number)
        guard.expect(small.raised, 'need_larger_window', '100000', str(length))
        expect.equal(small.raised.data.get('need'), 100_000)
        expect.holds(guard.memory.holds(0xA5), 'the window was written')
    expect.equal(guard.session.get(guard.region, 0, 100_000, 'large')['length'], 100_000)
    guard.unharmed()


def test_value_too_large(stage):
    """A value over the server's limit: too_large with the limit, nothing stored"""
    guard = guard_of(stage)
    with stage.valkey.faults(max_object_size=10_000):
        number = guard.session.start_set(guard.region, 0, 10_001, 'too large')
        guard.refuses(number, 'too_large', '10001', 'max object size')
        guard.session.set(guard.region, 0, 10_000, 'fits')
    expect.equal(guard.session.exists('too large', 'fits'), [False, True])


def test_closed_region(stage):
    """A region used after it was closed, while it closes, and closed twice"""
    guard = guard_of(stage)
    with stage.memory(SIZE) as memory:
        region = guard.session.register(memory)
        close = ask(guard, 'region.close', region=region)
        late = guard.session.start_get(region, 0, 10, 'guard')
        expect.equal(guard.session.outcome(close), 'ok')
        guard.refuses(late, 'no_region', region)
        for start in (guard.session.start_get, guard.session.start_set):
            guard.refuses(start(region, 0, 10, 'guard'), 'no_region', region)
        guard.refuses(ask(guard, 'region.close', region=region), 'no_region', region)
        guard.refuses(ask(guard, 'region.close', region=region, force=True), 'no_region', region)
        expect.holds(guard.session.register(memory) > region, 'a number was used again')
        guard.session.call('region.close', region=region + 1)
    guard.unharmed()


def test_regions_of_another_client(stage):
    """Regions of another session cannot be used, closed, or guessed"""
    guard = guard_of(stage)
    with stage.memory(SIZE, fill=0x5A) as memory:
        other = Session(guard.daemon.path)
        region = 0
        for _ in range(5):
            region = other.register(memory)
        foreign = [number for number in range(1, region + 1) if number != guard.region] + [region + 1, BIG]
        for number in foreign:
            for start in (guard.session.start_get, guard.session.start_set):
                with expect.error('no_region') as refused:
                    guard.session.wait(start(number, 0, 10, 'guard'))
                expect.holds(str(number) in refused.raised.message, refused.raised)
            with expect.error('no_region'):
                guard.session.call('region.close', region=number, force=True)
        expect.holds(memory.holds(0x5A), 'memory of another client changed')
        expect.equal(len(other.call('status')['session']['regions']), 5)
        number = other.start_set(region, 0, 10, 'other')
        with stage.valkey.faults(test_delay_before_reply_ms=300):
            slow = other.start_set(region, 0, 10, 'other')
            expect.equal(guard.session.call('transfer.cancel', id=slow), {'cancelled': False})
            expect.equal((other.outcome(number), other.outcome(slow)), ('ok', 'ok'))
        other.close()
    guard.as_before('another client')
    guard.unharmed()


def test_fuzz_of_one_byte(stage):
    """A good request with each of its bytes replaced or missing: one answer each, or none and the session lives"""
    guard = guard_of(stage)
    good = json.dumps({'jsonrpc': '2.0', 'id': 500_000, 'method': 'transfer.get',
                       'params': {'region': guard.region, 'offset': 0, 'length': 10, 'key': 'guard'}}).encode()
    answers = 0
    guard.session.answers.clear()
    for at in range(len(good)):
        for replacement in (b'', b'"', b'9', b'{', b'\xff'):
            guard.session.send_bytes(good[:at] + replacement + good[at + 1:])
            guard.session.pump_until(lambda: guard.session.without_id or len(guard.session.answers) > 0, ANSWER_WITHIN)
            answers += len(guard.session.without_id) + len(guard.session.answers)
            guard.session.without_id.clear()
            guard.session.answers.clear()
        if at % 10 == 0:
            guard.session.call('status')  # not so many malformed ones in a row that it is disconnected
            guard.session.answers.clear()
    expect.equal(answers, 5 * len(good))
    guard.unharmed()


tap.run(globals(), Stage(daemon_config=CONFIG))
