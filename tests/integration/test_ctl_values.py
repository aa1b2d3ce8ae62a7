"""glide-rdmactl: values and keys from the shell."""
import base64
import json
import os
import subprocess

from lib import expect, paths, tap
from lib.ctl import DATA, FALSE, INTERNAL, USAGE, Relay, bad, ctl, good, read, run, write
from lib.memory import MIB, noise
from lib.stage import Stage


# --- values


def round_trip(stage, size):
    data = noise(size, seed=size % 1000 + 1)
    output = os.path.join(stage.new_folder(), 'output')
    text = good(stage, 'put', f'size {size}', write(stage, data)).decode()
    expect.holds(f' {size} bytes' in text and 'path rdma' in text, text)
    text = good(stage, 'get', f'size {size}', output).decode()
    expect.holds(f' {size} bytes' in text, text)
    expect.same_bytes(read(output), data, f'{size} bytes')
    expect.equal(os.listdir(os.path.dirname(output)), ['output'])
    # Of unknown size, through pipes.
    good(stage, 'put', f'pipe {size}', '-', '--checksum', data=data)
    done = run(stage, 'get', f'pipe {size}', '-')
    expect.equal((done.returncode, done.stderr), (0, b''))
    expect.same_bytes(done.stdout, data, f'{size} bytes through pipes')


def test_round_trips(stage):
    """put and get of 1 byte to 5 MiB, as files and through pipes"""
    for size in (1, 4095, 4096, 4097, MIB, 4 * MIB, 4 * MIB + 1, 5 * MIB - 1):
        round_trip(stage, size)


def test_large_round_trip(stage):
    """put and get of 64 MiB"""
    round_trip(stage, 64 * MIB)


def test_redirected_input(stage):
    """A regular file as standard input, from the place where it is"""
    with open(write(stage, b'first second'), 'rb') as file:
        file.seek(6)
        done = subprocess.run([ctl(), 'put', 'redirected', '-'], stdin=file, timeout=100, stdout=subprocess.PIPE,
                              env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
    expect.equal(done.returncode, 0)
    expect.equal(stage.valkey.value('redirected'), b'second')


def test_file_without_size(stage):
    """A file that says 0 bytes and holds more, as those of /proc do"""
    good(stage, 'put', 'version', '/proc/version')
    expect.equal(stage.valkey.value('version'), read('/proc/version'))


def test_checksum(stage):
    """put --checksum: the server verifies; get verifies, and writes nothing where the bytes are wrong"""
    folder = stage.new_folder()
    path = os.path.join(folder, 'output')
    told = json.loads(good(stage, 'put', 'sum', write(stage, b'123456789'), '--checksum', '--json'))
    expect.equal((told['key'], told['length'], told['crc32c'], told['verified'], told['path']),
                 ('sum', 9, 0xE3069283, True, 'rdma'))
    told = json.loads(good(stage, 'get', 'sum', path, '--json'))
    expect.equal((told['found'], told['length'], told['crc32c'], told['verified']), (True, 9, 0xE3069283, True))
    os.unlink(path)
    with stage.valkey.faults(test_wrong_crc='yes'):
        bad(stage, DATA, 'get', 'sum', path, says=['checksum'])
        bad(stage, DATA, 'get', 'sum', '-', says=['checksum'])
    expect.equal(os.listdir(folder), [])


def test_binary_keys(stage):
    """Keys of any bytes: as they are, and in base64"""
    key = bytes(range(256))
    text = base64.b64encode(key).decode()
    good(stage, 'put', '--key-b64', text, '-', data=b'of a binary key')
    expect.equal(stage.valkey.value(key), b'of a binary key')
    expect.equal(good(stage, 'get', text, '-', '--key-b64'), b'of a binary key')
    told = json.loads(good(stage, 'exists', '--key-b64', '--json', text))
    expect.equal(told, {'keys': [{'key_b64': text, 'exists': True}]})
    good(stage, 'put', b'\xff\xfe\x1b[31m', '-', data=b'raw')
    expect.equal(stage.valkey.value(b'\xff\xfe\x1b[31m'), b'raw')
    expect.equal(good(stage, 'info', b'\xff\xfe\x1b[31m').split(b':')[0], rb'\xff\xfe\x1b[31m')
    good(stage, 'put', '--', '--json', '-', data=b'looks like an option')
    expect.equal(stage.valkey.value('--json'), b'looks like an option')
    for words in (['not base64!'], ['YQ'], ['']):
        bad(stage, USAGE, 'exists', '--key-b64', *words)
    bad(stage, USAGE, 'exists', '', says=['key'])
    bad(stage, USAGE, 'exists', 'k' * 16385, says=['16384', '16385'])
    good(stage, 'put', '-q', 'k' * 16384, '-', data=b'x')


def test_growing_value(stage):
    """A value that grows between info and get is fetched all the same"""
    # The client's region is made after info; a fault holds the get back until the value has been replaced.
    stage.valkey.store('grows', b'small')
    large = noise(3 * MIB, seed=5)
    path = os.path.join(stage.new_folder(), 'output')
    relay = Relay(stage, os.path.join(stage.new_folder(), 'relay.sock'))
    relay.before['region.register'] = lambda: stage.valkey.store('grows', large)
    relay.start()
    expect.equal(run(stage, '--socket', relay.path, 'get', 'grows', path).returncode, 0)
    expect.same_bytes(read(path), large, 'the larger value')
    expect.equal(relay.seen.count('transfer.get'), 2)
    relay.before['region.register'] = lambda: stage.valkey.call('DEL', 'grows')
    relay.start()
    bad(stage, FALSE, '--socket', relay.path, 'get', 'grows', path, says=['no such key'])
    expect.same_bytes(read(path), large, 'untouched')


# --- keys


def test_missing_keys(stage):
    """Missing keys: status 1, nothing written"""
    folder = stage.new_folder()
    path = os.path.join(folder, 'output')
    bad(stage, FALSE, 'get', 'absent', path, says=['absent', 'no such key'])
    done = run(stage, 'get', '-q', 'absent', '-')
    expect.equal((done.returncode, done.stdout, done.stderr), (FALSE, b'', b''))
    done = run(stage, 'get', '--json', 'absent', path)
    expect.equal((done.returncode, json.loads(done.stdout)), (FALSE, {'key': 'absent', 'found': False}))
    for command in ('exists', 'del', 'info'):
        done = run(stage, command, 'absent')
        expect.equal((done.returncode, done.stdout, done.stderr), (FALSE, b'absent: missing\n', b''))
    expect.equal(os.listdir(folder), [])


def test_keys(stage):
    """exists, del and info, for people and as JSON"""
    stage.valkey.store('one', b'123456789')
    stage.valkey.store('two', b'x' * 3000)
    done = run(stage, 'exists', 'one', 'absent', 'two')
    expect.equal((done.returncode, done.stdout), (FALSE, b'one: exists\nabsent: missing\ntwo: exists\n'))
    expect.equal(good(stage, 'exists', 'one', 'two', '--quiet'), b'')
    expect.equal(json.loads(run(stage, 'exists', '--json', 'one', 'absent').stdout),
                 {'keys': [{'key': 'one', 'exists': True}, {'key': 'absent', 'exists': False}]})
    expect.equal(good(stage, 'info', 'one'), b'one: 9 bytes (9 B), crc32c 0xe3069283\n')
    expect.equal(json.loads(good(stage, 'info', '--json', 'one')),
                 {'key': 'one', 'found': True, 'length': 9, 'crc32c': 0xE3069283})
    expect.equal(json.loads(run(stage, 'info', '--json', 'absent').stdout), {'key': 'absent', 'found': False})
    done = run(stage, 'del', 'one', 'one', 'two', '--json')
    expect.equal((done.returncode, json.loads(done.stdout)),
                 (FALSE, {'keys': [{'key': 'one', 'deleted': True}, {'key': 'one', 'deleted': False},
                                   {'key': 'two', 'deleted': True}]}))
    expect.equal(stage.valkey.call('EXISTS', 'one', 'two'), 0)


def test_many_keys(stage):
    """More keys than fit one request"""
    keys = [f'key {number}' for number in range(700)]
    stage.valkey.store(keys[-1], b'x')
    entries = json.loads(run(stage, 'exists', '--json', *keys).stdout)['keys']
    expect.equal([entry['exists'] for entry in entries], [False] * 699 + [True])


def test_other_types(stage):
    """A key that holds no large object: status 65; the others keep their answers"""
    stage.valkey.call('SET', 'text', 'x')
    bad(stage, DATA, 'get', 'text', '-', says=['wrong_type'])
    done = run(stage, 'info', 'text')
    expect.equal(done.returncode, DATA)
    expect.holds(b'wrong_type' in done.stderr, done.stderr)
    expect.equal(good(stage, 'exists', 'text'), b'text: exists\n')


def test_ttl(stage):
    """put --ttl and expire: the key's time to live"""
    told = json.loads(good(stage, 'put', 'mortal', '-', '--ttl', '100', '--json', data=b'x'))
    expect.equal(told['ttl_applied'], True)
    left = stage.valkey.call('PTTL', 'mortal')
    expect.holds(0 < left <= 100_000, left)
    expect.equal(good(stage, 'expire', 'mortal', '5000'), b'mortal: expires\n')
    left = stage.valkey.call('PTTL', 'mortal')
    expect.holds(100_000 < left <= 5_000_000, left)
    expect.equal(json.loads(good(stage, 'expire', '--json', 'mortal', '60')), {'key': 'mortal', 'expired': True})
    done = run(stage, 'expire', 'absent', '5')
    expect.equal((done.returncode, done.stdout, done.stderr), (FALSE, b'absent: missing\n', b''))
    expect.equal('ttl_applied' in json.loads(good(stage, 'put', 'lasting', '-', '--json', data=b'x')), False)
    expect.equal(stage.valkey.call('PTTL', 'lasting'), -1)
    for seconds in ('0', '-5', '1.5', 'soon', '', '3153600001'):
        bad(stage, USAGE, 'expire', '--', 'mortal', seconds, says=['3153600000'])


def test_ttl_not_applied(stage):
    """A time to live that the server refuses does not go unnoticed: the value is stored, status 70"""
    stage.valkey.call('ACL', 'SETUSER', 'poor', 'on', '>secret', '~*', '&*', '+@all', '-pexpire')
    secret = write(stage, b'secret')
    daemon = stage.other_daemon(config={'valkey.user': 'poor', 'valkey.password_file': secret})
    done = run(stage, 'put', 'lasts', '-', '--ttl', '100', '--json', data=b'kept', daemon=daemon)
    expect.equal((done.returncode, json.loads(done.stdout)['ttl_applied']), (INTERNAL, False))
    expect.holds(b'is stored' in done.stderr, done.stderr)
    expect.equal(stage.valkey.value('lasts'), b'kept')


tap.run(globals(), Stage())
