"""proto/PROTOCOL.md is enough: a client written from it alone (protocol_client.py) runs the integration cases."""
import base64
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))

from lib import expect, tap, wait  # noqa: E402
from lib.stage import Stage  # noqa: E402
from protocol_client import Client, Ended, Memory, Refused, crc32c  # noqa: E402

MIB = 1 << 20


def pattern(length, seed=1):
    """Bytes in which no two pages are alike."""
    return b''.join(b'%08d' % (seed * 1000003 + n) for n in range(length // 8 + 1))[:length]


class refusal:
    """with refusal('overlap', 'words') as r: ...   Afterwards r.error is the Refused."""

    def __init__(self, name, *words):
        self.name = name
        self.words = words
        self.error = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        expect.holds(kind is not None, f'no error came, wanted {self.name}')
        if not isinstance(value, Refused):
            return False
        self.error = value
        expect.equal(value.name, self.name, str(value))
        for word in self.words:
            expect.holds(word in value.message, f'"{word}" is not in: {value.message}')
        return True


def ready(stage, daemon=None, size=2 * MIB, **register):
    client = Client((daemon or stage.daemon).path)
    client.hello()
    memory = Memory(size)
    return client, memory, client.register(memory, **register)['region']


def quiet(stage):
    """Waits until the server has come to the end of what tests before have cancelled: it counts among those that run"""
    wait.until(lambda: stage.valkey.info('transfers') == 0, 'nothing runs')


def test_checksum(stage):
    """The client's own CRC-32C has the value that the page names"""
    expect.equal(crc32c(b'123456789'), 3808858755)
    expect.equal(crc32c(b'6789', crc32c(b'12345')), 3808858755)


def test_hello(stage):
    """hello: version, limits, fabric, and a pidfd that is not readable"""
    with Client(stage.daemon.path) as client:
        result = client.hello()
        expect.equal(result['protocol'], 1)
        expect.holds(result['server'].startswith('glide-rdmad '), result)
        expect.equal(result['limits']['message_bytes'], 65536)
        for name in ('regions', 'in_flight', 'region_bytes', 'requests'):
            expect.holds(result['limits'][name] > 0, result['limits'])
        expect.equal(result['fabric']['provider'], 'tcp')
        expect.holds(client.pidfd is not None, 'no pidfd came')
        expect.equal(client.daemon_gone(0), False)
        with open(f'/proc/self/fdinfo/{client.pidfd}', encoding='ascii') as file:
            expect.holds(f'Pid:\t{stage.daemon.pid}\n' in file.read(), 'the descriptor is no pidfd of the daemon')


def test_hello_rules(stage):
    """hello comes first, once, and in a version that the daemon speaks; after a refusal it may be sent again"""
    with Client(stage.daemon.path) as client:
        with refusal('invalid_request', 'hello'):
            client.status()
        with refusal('invalid_params', '2') as newer:
            client.hello(protocol=2)
        expect.equal((newer.error.data['min'], newer.error.data['max']), (1, 1))
        client.hello()
        with refusal('invalid_request', 'hello'):
            client.hello()
        client.status()


def test_register(stage):
    """region.register and region.close; a part of a file; a second region of the same memory is shared"""
    with Client(stage.daemon.path) as client:
        client.hello()
        memory = Memory(MIB)
        first = client.register(memory, label='first', populate=True)
        expect.equal((first['capacity'], first['page_size'], first['shared']), (MIB, os.sysconf('SC_PAGESIZE'), False))
        second = client.register(memory)
        expect.equal(second['shared'], True)
        expect.holds(second['region'] != first['region'], 'the same number')
        part = client.register(memory, offset=4096, size=8192)
        expect.equal(part['capacity'], 8192)
        with refusal('out_of_range', '4096'):
            client.register(memory, offset=1, size=10)
        with refusal('bad_fd'):
            client.register(memory, size=MIB + 1)
        expect.equal(client.close_region(first['region'])['memory_released'], True)
        with refusal('no_region'):
            client.close_region(first['region'])
        with refusal('invalid_params', 'dmabuf'):
            client.register(memory, type='dmabuf')


def check_round_trip(client, memory, region, data, key):
    memory.write(0, data)
    expect.equal(client.set(region, 0, len(data), key, crc32c=crc32c(data))['path'], 'rdma')
    got = client.get(region, MIB, MIB, key)
    expect.equal((got['found'], got['length'], got['path']), (True, len(data), 'rdma'))
    expect.same_bytes(memory.read(MIB, len(data)), data)
    expect.equal(got['crc32c'], crc32c(data))


def test_set_and_get(stage):
    """Values of 1 byte to 1 MiB there and back, with checksums; keys as text and as bytes"""
    client, memory, region = ready(stage)
    for length in (1, 9, 4095, 4096, 4097, 100_000, MIB):
        check_round_trip(client, memory, region, pattern(length, length), f'schlüssel {length}')
    check_round_trip(client, memory, region, pattern(1000, 7), b'\x00\xff any bytes')
    expect.same_bytes(stage.valkey.value(b'\x00\xff any bytes'), pattern(1000, 7))
    expect.equal(client.get(region, 0, 1, 'nothing there'), {'found': False, 'length': 0})
    with refusal('checksum_mismatch'):
        client.set(region, 0, 100, 'wrong', crc32c=1)
    client.close()


def test_both_forms_of_a_key(stage):
    """key and key_b64 of the same bytes name the same key; both or none is refused"""
    client, memory, region = ready(stage)
    memory.write(0, b'abc')
    client.set(region, 0, 3, 'both')
    expect.equal(client.get(region, 10, 3, b'both')['found'], True)
    window = {'region': region, 'offset': 0, 'length': 3}
    with refusal('invalid_params', 'key_b64'):
        client.call('transfer.get', {**window, 'key': 'x', 'key_b64': 'eA=='})
    with refusal('invalid_params', 'key_b64'):
        client.call('transfer.get', window)
    for wrong in ('eA', 'eA=', 'e A==', 'eB==', '', '=', '-_=='):
        with refusal('invalid_params'):
            client.call('transfer.get', {**window, 'key_b64': wrong})
    longest = base64.b64encode(b'k' * 16384).decode()
    expect.equal(client.call('transfer.get', {**window, 'key_b64': longest})['found'], False)
    client.close()


def test_ttl(stage):
    """ttl_ms: applied, told, and the key goes away"""
    client, memory, region = ready(stage)
    expect.equal(client.set(region, 0, 10, 'for a day', ttl_ms=86_400_000)['ttl_applied'], True)
    left = stage.valkey.call('PTTL', 'for a day')
    expect.holds(86_000_000 < left <= 86_400_000, f'PTTL is {left}')
    expect.holds('ttl_applied' not in client.set(region, 0, 10, 'for ever'), 'ttl_applied without ttl_ms')
    client.set(region, 0, 10, 'for a moment', ttl_ms=20)
    wait.until(lambda: not client.get(region, 0, 10, 'for a moment')['found'], 'the key expires')
    with refusal('invalid_params', 'ttl_ms'):
        client.set(region, 0, 10, 'key', ttl_ms=0)
    client.close()


def test_pipelined(stage):
    """Many transfers in flight, on windows that do not overlap; each has one answer"""
    client, memory, region = ready(stage)
    memory.write(0, pattern(100 * 4096))
    numbers = [client.submit_set(region, at * 4096, 4096, f'piece {at}') for at in range(100)]
    for number in reversed(numbers):
        client.wait(number)
    numbers = [client.submit_get(region, MIB + at * 4096, 4096, f'piece {at}') for at in range(100)]
    for number in numbers:
        expect.equal(client.wait(number)['length'], 4096)
    expect.same_bytes(memory.read(MIB, 100 * 4096), pattern(100 * 4096))
    client.close()


def test_errors(stage):
    """Errors of transfers come with their names and data"""
    client, memory, region = ready(stage)
    stage.valkey.store('large', pattern(600_000))
    stage.valkey.call('SET', 'text', 'x')
    memory.write(0, b'\xa5' * MIB)
    with refusal('need_larger_window', '600000', '524288') as small:
        client.get(region, 0, 524_288, 'large')
    expect.equal((small.error.code, small.error.data['need']), (-5, 600_000))
    expect.holds(memory.read(0, MIB) == b'\xa5' * MIB, 'the window was written')
    with refusal('wrong_type'):
        client.get(region, 0, MIB, 'text')
    with refusal('out_of_range', str(2 * MIB)) as outside:
        client.get(region, MIB, MIB + 1, 'large')
    expect.equal(outside.error.data.get('capacity'), 2 * MIB)
    with refusal('no_region', '77'):
        client.get(77, 0, 1, 'large')
    readable = client.register(memory, access='r')['region']
    with refusal('denied'):
        client.get(readable, 0, 10, 'large')
    client.set(readable, 0, 10, 'from a region for reading')
    with stage.valkey.faults(test_answer_error='ERR something new', test_answer_error_count=1):
        with refusal('server_error', 'something new') as server:
            client.set(region, 0, 10, 'key')
    expect.equal(server.error.data['server_text'], 'ERR something new')
    expect.equal(server.error.data['may_have_run'], True)
    client.close()


def test_overlap_and_busy(stage):
    """A window in use is refused to others; a region in use is closed by force only"""
    client, memory, region = ready(stage)
    stage.valkey.store('value', pattern(1000))
    with stage.valkey.faults(test_delay_before_reply_ms=4000):
        number = client.submit_get(region, 0, 1000, 'value')
        with refusal('overlap'):
            client.get(region, 999, 10, 'value')
        with refusal('busy', 'force'):
            client.close_region(region)
        close = client.submit('region.close', {'region': region, 'force': True})
        with refusal('cancelled'):
            client.wait(number)
        expect.equal(client.wait(close)['memory_released'], True)
    client.close()


def test_deadline(stage):
    """A deadline that passes: the error says what may have happened"""
    client, _, region = ready(stage)
    client.set(region, 0, 1000, 'late')  # so that the next one is with the server at once
    with stage.valkey.faults(test_never_answer='yes'):
        with refusal('deadline') as late:
            client.set(region, 0, 1000, 'late', deadline_ms=4000)
    expect.equal(late.error.data.get('may_have_run'), True)
    expect.holds('outcome' in late.error.data, late.error.data)
    client.close()


def test_cancel(stage):
    """transfer.cancel of one that was sent, of one in the queue, of one that was answered, and of no transfer"""
    daemon = stage.other_daemon(config={'valkey.connections': 1})
    client, _, region = ready(stage, daemon)
    client.set(region, 0, 10, 'key')
    quiet(stage)
    with stage.valkey.faults(test_delay_before_reply_ms=4000):
        sent = client.submit_set(region, 0, 10, 'key')
        queued = client.submit_set(region, 100, 10, 'key')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'one runs')
        expect.equal(client.cancel(queued), True)
        with refusal('cancelled') as first:
            client.wait(queued)
        expect.holds(not first.error.data.get('may_have_run'), first.error.data)
        expect.equal(client.cancel(sent), True)
        with refusal('cancelled') as second:
            client.wait(sent)
        expect.equal(second.error.data.get('may_have_run'), True)
    expect.equal(client.cancel(sent), False)
    expect.equal(client.cancel(client.submit('keys.exists', {'keys': ['x']})), False)
    expect.equal(client.set(region, 0, 10, 'key')['path'], 'rdma')
    client.close()


def test_keys(stage):
    """keys.*: entries in the order of the request; one that fails does not spoil the others"""
    client, memory, region = ready(stage)
    memory.write(0, b'123456789')
    for key in ('digits', 'schlüssel', b'\xff\x00'):
        client.set(region, 0, 9, key)
    stage.valkey.call('SET', 'text', 'x')
    expect.equal(client.keys('exists', ['digits', 'absent', b'\xff\x00', b'digits']),
                 [{'exists': True}, {'exists': False}, {'exists': True}, {'exists': True}])
    there, absent, other = client.keys('info', ['digits', 'absent', 'text'])
    expect.equal((there['found'], there['length'], there['crc32c']), (True, 9, 3808858755))
    expect.equal(absent, {'found': False})
    expect.equal(other['error']['name'], 'wrong_type')
    expect.equal(client.keys('expire', ['digits', 'absent'], ttl_ms=86_400_000), [{'expired': True}, {'expired': False}])
    expect.holds(stage.valkey.call('PTTL', 'digits') > 86_000_000, 'PTTL')
    expect.equal(client.keys('delete', ['digits', 'digits', 'schlüssel']),
                 [{'deleted': True}, {'deleted': False}, {'deleted': True}])
    for keys in ([], ['k'] * 257, [''], [7], [{'key_b64': 'x'}], [{'key': 'x'}]):
        with refusal('invalid_params'):
            client.call('keys.exists', {'keys': keys})
    client.close()


STATUS = {
    'daemon': ('version', 'uptime_ms', 'draining', 'usable', 'why', 'sessions', 'loop_longest_callback_us'),
    'fabric': ('provider', 'usable', 'why', 'libfabric', 'providers', 'interfaces', 'lanes'),
    'memory': ('pinned_bytes', 'limit_bytes', 'quarantined_bytes', 'arenas', 'regions', 'quarantined_arenas',
               'memlock', 'devices', 'quarantine_restart_bytes'),
    'transfers': ('queued', 'open', 'ended'),
    'session': ('id', 'requests', 'region_count', 'regions'),
    'user': ('uid', 'socket', 'sessions', 'regions', 'pinned_bytes', 'devices', 'transfers'),
    'limits': ('sessions_per_user', 'requests', 'queue', 'regions', 'regions_per_user', 'region_bytes'),
}
NODE = ('address', 'state', 'why', 'transport', 'transport_why', 'rdma_address', 'rdma_auth_in_clear', 'carriers',
        'carriers_busy', 'reconnects', 'revocations', 'session_why')


def test_status(stage):
    """status has every member that the page names"""
    client, memory, _ = ready(stage, label='named')
    status = client.status()
    for part, members in STATUS.items():
        expect.equal([name for name in members if name not in status[part]], [], f'missing in {part}')
    for node in status['nodes']:
        expect.equal([name for name in NODE if name not in node], [], 'missing in a node')
    entry = status['session']['regions'][0]
    expect.equal([entry.get(name) for name in ('size', 'access', 'shared', 'windows', 'label')],
                 [memory.size, 'rw', False, 0, 'named'])
    expect.equal(status['user']['uid'], os.getuid())
    client.close()


def test_admin_socket(stage):
    """The admin socket: no hello needed, other methods, lists in pages"""
    client, _, _ = ready(stage, label='seen')
    with Client(stage.daemon.admin_path) as operator:
        expect.holds('session' not in operator.status(), 'status of the admin socket')
        expect.equal(operator.hello()['protocol'], 1)
        expect.equal(operator.pidfd, None)
        page = operator.call('regions', {'limit': 1})
        expect.holds(any(region.get('label') == 'seen' for region in page['regions']) or 'next' in page, page)
        expect.holds(any(entry['name'] == 'protocol_client.py' for entry in operator.call('clients')['clients']), 'name')
        expect.equal(operator.call('transfers')['transfers'], [])
        expect.equal(operator.call('nodes')['nodes'][0]['state'], 'up')
        with refusal('method_not_found', 'keys.exists'):
            operator.call('keys.exists', {'keys': ['x']})
    with refusal('method_not_found', 'regions'):
        client.call('regions')
    client.close()


def test_refused_messages(stage):
    """Packets in which no id can be read are answered with a null id, others with theirs; the session goes on"""
    client, _, _ = ready(stage)
    for packet, name in ((b'{', 'parse_error'), (b'\xff', 'parse_error'), (b'[]', 'invalid_request'),
                         (b'{"jsonrpc":"2.0","method":"status"}', 'invalid_request'),
                         (b'{"jsonrpc":"2.0","id":7,"id":7,"method":"status"}', 'parse_error'),
                         (b' ' * 65537, 'too_large')):
        client.send_packet(packet)
        expect.equal(client.wait_without_id()['data']['name'], name)
    with refusal('method_not_found', 'no.such'):
        client.call('no.such')
    with refusal('invalid_params', 'extra'):
        client.call('status', {'extra': 1})
    with refusal('bad_fd'):
        client.call('status', fd=0)
    with refusal('bad_fd'):
        client.call('region.register', {'type': 'memfd', 'size': 4096})
    client.status()
    client.close()


def test_too_many_sessions(stage):
    """A session too many is told so, and closed, without an answer"""
    daemon = stage.other_daemon(config={'limits.sessions_per_user': 1})
    client, _, _ = ready(stage, daemon)
    with Client(daemon.path) as other:
        closed = other.wait_notification('session.closed')
        expect.equal(closed['code'], -8)
        other.read_to_end()
        expect.holds(other.closed_on_purpose(), other.last_packet)
    client.close()


def test_silence(stage):
    """A client that does not say hello gets session.closed"""
    daemon = stage.other_daemon(config={'limits.hello_ms': 200})
    with Client(daemon.path) as client:
        expect.equal(client.wait_notification('session.closed')['code'], -6)
        client.read_to_end()


def test_orderly_end(stage):
    """The daemon stops: draining is told; session.closed comes last, and requests without an answer fail at once"""
    daemon = stage.other_daemon(config={'daemon.drain_ms': 200})
    client, _, region = ready(stage, daemon)
    client.set(region, 0, 10, 'key')
    quiet(stage)
    with stage.valkey.faults(test_delay_before_reply_ms=4000):
        number = client.submit_set(region, 0, 10, 'key')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'it runs')
        daemon.process.terminate()
        expect.equal(client.wait_notification('daemon.draining')['deadline_ms'], 200)
        with refusal('interrupted') as ended:
            client.wait(number)
        expect.equal(ended.error.data.get('may_have_run'), True)
        client.read_to_end()
        expect.holds(client.closed_on_purpose(), f'the last packet is {client.last_packet}')
    try:
        client.status()
        raise AssertionError('a request was sent after the end')
    except Ended:
        pass
    client.close()


def test_death_of_the_daemon(stage):
    """The daemon is killed: the window is left alone until the pidfd says that it is gone"""
    daemon = stage.other_daemon()
    client, _, region = ready(stage, daemon)
    client.set(region, 0, 10, 'key')
    quiet(stage)
    with stage.valkey.faults(test_delay_before_reply_ms=4000):
        number = client.submit_set(region, 0, 10, 'key')
        wait.until(lambda: stage.valkey.info('transfers') == 1, 'it runs')
        daemon.kill()
        with refusal('interrupted') as ended:
            client.wait(number)
        expect.equal(ended.error.data['may_have_run'], True)
        expect.holds(not client.closed_on_purpose(), 'session.closed of a daemon that was killed')
        expect.equal(client.daemon_gone(0), True)
    client.close()


def test_example_of_the_page(stage):
    """The session that the page shows packet by packet"""
    with Client(stage.daemon.path) as client:
        client.hello()
        memory = Memory(MIB)
        expect.equal(set(client.register(memory, access='rw', label='cache')),
                     {'region', 'capacity', 'shared', 'page_size'})
        stage.valkey.store(base64.b64decode('AP8='), bytes(600_000))
        memory.write(0, b'123456789')
        stored = client.submit_set(1, 0, 9, 'digits', crc32c=3808858755)
        fetched = client.submit_get(1, 524_288, 524_288, b'\x00\xff', deadline_ms=5000)
        with refusal('need_larger_window'):
            client.wait(fetched)
        expect.equal(client.wait(stored), {'path': 'rdma'})
        expect.equal(client.get(1, 4096, 4096, 'digits'),
                     {'found': True, 'length': 9, 'crc32c': 3808858755, 'path': 'rdma'})
        expect.same_bytes(memory.read(4096, 9), b'123456789')
        expect.equal(client.close_region(1), {'memory_released': True})


tap.run(globals(), Stage())
