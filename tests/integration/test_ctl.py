"""glide-rdmactl: values, keys and lists from the shell; its exit status; what it shows on a terminal."""
import base64
import grp
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import threading
import time

from lib import expect, paths, tap, wait
from lib.memory import MIB, noise
from lib.stage import Stage
from lib.users import NOBODY

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'glide-rdmactl.1.scd')
FALSE, USAGE, DATA, INPUT, UNAVAILABLE, INTERNAL, SYSTEM, CREATE, IO, AGAIN, PROTOCOL, NO_ACCESS = \
    1, 64, 65, 66, 69, 70, 71, 73, 74, 75, 76, 77


def ctl():
    return paths.built('GRD_CTL')


def run(stage, *words, data=None, daemon=None, user=None, folder=None, **environment):
    """Ends within 30 s; stdout and stderr of the result are bytes."""
    environment.setdefault('GLIDE_RDMAD_SOCKET', (daemon or stage.daemon).path)
    return subprocess.run([ctl(), *words], input=b'' if data is None else data, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=30, env=paths.environment(**environment), cwd=folder,
                          **({'user': user, 'group': user, 'extra_groups': []} if user is not None else {}))


def good(stage, *words, **arguments):
    """The output of a run that succeeds and says nothing on standard error."""
    done = run(stage, *words, **arguments)
    expect.equal((done.returncode, done.stderr), (0, b''), ' '.join(map(str, words)))
    return done.stdout


def bad(stage, status, *words, says=(), **arguments):
    """A run that fails with this status, prints nothing, and says why in one line."""
    done = run(stage, *words, **arguments)
    expect.equal((done.returncode, done.stdout), (status, b''), f'{words}: {done.stderr}')
    text = done.stderr.decode()
    for word in says:
        expect.holds(word in text, f'{word!r} is missing in {text!r}')
    expect.holds(text.endswith('\n') and text.count('\n') == 1, f'not one line: {text!r}')
    return text


def admin(stage, *words, **arguments):
    return good(stage, '--admin-socket', stage.daemon.admin_path, *words, **arguments)


def write(stage, data, name='input'):
    path = os.path.join(stage.new_folder(), name)
    with open(path, 'wb') as file:
        file.write(data)
    return path


def write_file(path, data, mode):
    with open(path, 'wb') as file:
        file.write(data)
    os.chmod(path, mode)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def need_root():
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')


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
        done = subprocess.run([ctl(), 'put', 'redirected', '-'], stdin=file, timeout=30, stdout=subprocess.PIPE,
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


class Relay:
    """Passes one session's packets on, and does something before it passes a certain request."""

    def __init__(self, stage, path):
        self.path = path
        self.target = stage.daemon.path
        self.before = {}
        self.seen = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(1)

    def start(self):
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        client, _ = self.listener.accept()
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.connect(self.target)
            while True:
                for ready in select.select([client, daemon], [], [])[0]:
                    packet, fds, _, _ = socket.recv_fds(ready, 65536, 8)
                    if not packet:
                        return
                    if ready is client:
                        self._look(packet)
                    socket.send_fds(daemon if ready is client else client, [packet], fds)
                    for fd in fds:
                        os.close(fd)

    def _look(self, packet):
        method = json.loads(packet)['method']
        self.seen.append(method)
        action = self.before.pop(method, None)
        if action is not None:
            action()


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


# --- refusals


def test_over_region_bytes(stage):
    """A file above region_bytes is refused before it is read, with the limit; so is standard input"""
    daemon = stage.other_daemon(config={'limits.region_bytes': '1M'})
    path = os.path.join(stage.new_folder(), 'sparse')
    with open(path, 'wb') as file:
        file.truncate(1 << 43)  # no host has the memory, and reading it would take hours
    bad(stage, INPUT, 'put', 'key', path, daemon=daemon, says=['region_bytes', str(MIB), str(1 << 43)])
    bad(stage, INPUT, 'put', 'key', '-', data=b'x' * (MIB + 1), daemon=daemon, says=['region_bytes', str(MIB)])
    good(stage, 'put', 'key', '-', data=b'x' * MIB, daemon=daemon)
    expect.equal(len(good(stage, 'get', 'key', '-', daemon=daemon)), MIB)
    stage.valkey.store('key', b'x' * (MIB + 1))
    bad(stage, DATA, 'get', 'key', path + '.out', daemon=daemon, says=['region_bytes', str(MIB), str(MIB + 1)])
    expect.holds(not os.path.exists(path + '.out'), 'something was written')


def test_endless_input(stage):
    """Endless input ends at the limit"""
    daemon = stage.other_daemon(config={'limits.region_bytes': '1M'})
    with open('/dev/zero', 'rb') as zero:
        done = subprocess.run([ctl(), '--socket', daemon.path, 'put', 'key', '-'], stdin=zero, timeout=30,
                              stderr=subprocess.PIPE, env=paths.environment())
    expect.equal(done.returncode, INPUT)
    expect.holds(b'region_bytes' in done.stderr, done.stderr)


def test_over_server_maximum(stage):
    """A file above the server's maximum is refused before it is read, with the limit; a raised limit is noticed"""
    server = stage.other_valkey(module_options={'max-object-size': MIB})
    daemon = stage.other_daemon(server)
    path = os.path.join(stage.new_folder(), 'sparse')
    with open(path, 'wb') as file:
        file.truncate(1 << 43)
    bad(stage, INPUT, 'put', 'key', path, daemon=daemon, says=['server', str(MIB), str(1 << 43)])
    bad(stage, INPUT, 'put', 'key', write(stage, b'x' * (MIB + 1)), daemon=daemon, says=['server', str(MIB)])
    good(stage, 'put', 'key', write(stage, b'x' * MIB), daemon=daemon)
    with server.faults(max_object_size=2 * MIB):
        good(stage, 'put', 'key', write(stage, b'x' * (MIB + 1)), daemon=daemon)


def test_server_keeps_its_maximum(stage):
    """Where the server does not tell its maximum: status 66 with the server's words, after the file was read"""
    server = stage.other_valkey(module_options={'max-object-size': MIB})
    server.call('ACL', 'SETUSER', 'plain', 'on', '>secret', '~*', '+@all', '-config')
    password = write(stage, b'secret\n')
    daemon = stage.other_daemon(server, config={'valkey.user': 'plain', 'valkey.password_file': password})
    bad(stage, INPUT, 'put', 'key', write(stage, b'x' * (MIB + 1)), daemon=daemon, says=['too_large', str(MIB + 1)])
    good(stage, 'put', 'key', write(stage, b'x' * MIB), daemon=daemon)


def test_over_budget(stage):
    """A file above the budget of registered memory: try again, before it is read"""
    daemon = stage.other_daemon(config={'memory.pinned_limit': '1M'})
    path = os.path.join(stage.new_folder(), 'large')
    with open(path, 'wb') as file:
        file.truncate(8 * MIB)
    bad(stage, AGAIN, 'put', 'key', path, daemon=daemon, says=['over_budget'])


def test_unusable_input(stage):
    """Input that is missing, empty, a directory, a device, or a pipe that nobody may wake: status 66"""
    folder = stage.new_folder()
    fifo = os.path.join(folder, 'fifo')
    os.mkfifo(fifo)
    for path in (folder, '/dev/zero', fifo):
        bad(stage, INPUT, 'put', 'never stored', path, says=[path, 'regular file'])
    bad(stage, INPUT, 'put', 'never stored', os.path.join(folder, 'absent'), says=['absent', 'No such file'])
    bad(stage, INPUT, 'put', 'never stored', write(stage, b''), says=['empty'])
    bad(stage, INPUT, 'put', 'never stored', '-', says=['empty'])
    expect.equal(stage.valkey.call('EXISTS', 'never stored'), 0)
    need_root()
    secret = write(stage, b'secret')
    os.chmod(secret, 0)
    bad(stage, INPUT, 'put', 'never stored', secret, user=NOBODY, says=['ermission'])


def test_full_pipe_is_not_read(stage):
    """A pipe named as file keeps its bytes"""
    fifo = os.path.join(stage.new_folder(), 'fifo')
    os.mkfifo(fifo)
    fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    os.write(fd, b'kept')
    bad(stage, INPUT, 'put', 'never stored', fifo)
    expect.equal(os.read(fd, 10), b'kept')
    os.close(fd)


def test_changing_input(stage):
    """A file that changes its size while it is read is not stored"""
    path = write(stage, b'x' * MIB)
    relay = Relay(stage, os.path.join(stage.new_folder(), 'relay.sock'))
    for size in (MIB - 1, MIB + 1):
        with open(path, 'wb') as file:
            file.truncate(MIB)
        relay.before['region.register'] = lambda end=size: os.truncate(path, end)
        relay.start()
        bad(stage, INPUT, '--socket', relay.path, 'put', 'changing', path, says=['changed'])
    expect.equal(stage.valkey.call('EXISTS', 'changing'), 0)


# --- output


def test_unusable_output(stage):
    """Output that cannot be created: status 73, before anything is fetched"""
    stage.valkey.store('value', b'v' * 100)
    folder = stage.new_folder()
    bad(stage, CREATE, 'get', 'value', folder, says=[folder])
    bad(stage, CREATE, 'get', 'value', os.path.join(folder, 'absent', 'file'), says=['No such file'])
    bad(stage, CREATE, 'get', 'value', '', says=['create'])
    need_root()
    os.chmod(folder, 0o755)
    bad(stage, CREATE, 'get', 'value', os.path.join(folder, 'file'), user=NOBODY, says=['ermission'])


def test_failing_output(stage):
    """Output that cannot be written: status 74; a reader that has gone is no word worth"""
    stage.valkey.store('value', b'v' * MIB)
    bad(stage, IO, 'get', 'value', '/dev/full', says=['/dev/full'])
    with open('/dev/full', 'wb') as full:
        for words in (['get', 'value', '-'], ['status'], ['--help']):
            done = subprocess.run([ctl(), *words], stdout=full, stderr=subprocess.PIPE, timeout=30,
                                  env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
            expect.equal(done.returncode, IO, words)
            expect.holds(b'No space left' in done.stderr, done.stderr)
    read_end, write_end = os.pipe()
    os.close(read_end)
    for words in (['get', 'value', '-'], ['status']):
        done = subprocess.run([ctl(), *words], stdout=write_end, stderr=subprocess.PIPE, timeout=30,
                              env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
        expect.equal((done.returncode, done.stderr), (IO, b''), words)
    os.close(write_end)


def test_full_file_system(stage):
    """A file system that is full: status 74, and no part of a file is left"""
    need_root()
    stage.valkey.store('value', b'v' * MIB)
    script = 'mount -t tmpfs -o size=256k none "$1" || exit 9; "$2" get value "$1/file"; echo $?; ls -A "$1"'
    done = subprocess.run(['unshare', '-m', '--propagation', 'unchanged', 'sh', '-c', script, 'sh',
                           stage.new_folder(), ctl()],
                          timeout=30, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
    if done.returncode in (1, 9):
        raise tap.Skip(f'cannot mount: {done.stderr.strip()}')
    expect.equal(done.stdout, f'{IO}\n', done.stderr)
    expect.holds('file' in done.stderr and 'No space left' in done.stderr, done.stderr)


def test_replaced_files(stage):
    """A file that is replaced keeps its mode, a new one has that of the umask; links stay; devices are written"""
    stage.valkey.store('value', b'new value')
    folder = stage.new_folder()
    path, link = os.path.join(folder, 'file'), os.path.join(folder, 'link')
    with open(path, 'wb') as file:
        file.write(b'old')
    os.chmod(path, 0o640)
    os.symlink('file', link)
    good(stage, 'get', 'value', 'link', folder=folder)
    expect.holds(os.path.islink(link), 'the link is gone')
    expect.equal((read(path), stat.S_IMODE(os.stat(path).st_mode)), (b'new value', 0o640))
    good(stage, 'get', 'value', 'fresh', folder=folder)
    expect.equal(stat.S_IMODE(os.stat(os.path.join(folder, 'fresh')).st_mode), 0o666 & ~umask())
    good(stage, 'get', 'value', '/dev/null')
    expect.holds(stat.S_ISCHR(os.stat('/dev/null').st_mode), '/dev/null was replaced')
    expect.equal(sorted(os.listdir(folder)), ['file', 'fresh', 'link'])


def test_replaced_file_of_another_group(stage):
    """A replaced file keeps owner and group; a group that it cannot be given is not replaced by another one"""
    need_root()
    stage.valkey.store('value', b'new value')
    folder = stage.new_folder()
    os.chmod(folder, 0o777)
    path = os.path.join(folder, 'file')
    for user, shown in ((None, (11, 12, 0o660)), (NOBODY, (NOBODY, NOBODY, 0o606))):
        write_file(path, b'old', 0o666)
        os.chown(path, 11, 12)
        os.chmod(path, 0o660 if user is None else 0o666)
        good(stage, 'get', 'value', path, user=user)
        status = os.stat(path)
        expect.equal((status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)), shown)
        expect.equal(read(path), b'new value')


def test_file_that_may_not_be_written(stage):
    """A file that this user may not write is not replaced either, although its folder would allow it"""
    need_root()
    stage.valkey.store('value', b'new value')
    folder = stage.new_folder()
    os.chmod(folder, 0o777)
    path = os.path.join(folder, 'file')
    write_file(path, b'old', 0o644)
    bad(stage, CREATE, 'get', 'value', path, user=NOBODY, says=['ermission'])
    expect.equal((read(path), os.listdir(folder)), (b'old', ['file']))


def test_dangling_links(stage):
    """What a link points to is made where it is not there; a circle is an error"""
    stage.valkey.store('value', b'value')
    folder = stage.new_folder()
    os.mkdir(os.path.join(folder, 'sub'))
    os.symlink('sub/second', os.path.join(folder, 'first'))
    os.symlink('../target', os.path.join(folder, 'sub', 'second'))
    good(stage, 'get', 'value', 'first', folder=folder)
    expect.equal(read(os.path.join(folder, 'target')), b'value')
    expect.holds(os.path.islink(os.path.join(folder, 'sub', 'second')), 'the link is gone')
    os.symlink('circle', os.path.join(folder, 'circle'))
    bad(stage, CREATE, 'get', 'value', 'circle', folder=folder, says=['circle'])
    expect.equal(sorted(os.listdir(folder)), ['circle', 'first', 'sub', 'target'])


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_interrupted(stage):
    """A signal ends it at once, by that signal, and leaves no part of a file"""
    stage.valkey.store('value', b'v' * 100)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU, signal.SIGUSR1, signal.SIGALRM):
        folder = stage.new_folder()
        with stage.valkey.faults(test_delay_before_reply_ms=3000):
            child = subprocess.Popen([ctl(), 'get', 'value', os.path.join(folder, 'file')], stderr=subprocess.PIPE,
                                     env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
            wait.until(lambda: stage.valkey.info('transfers') > 0, 'the transfer runs')
            expect.equal(len(os.listdir(folder)), 1, 'the temporary file')
            child.send_signal(number)
            expect.equal(child.wait(20), -number)
        expect.equal(child.stderr.read(), b'')
        child.stderr.close()
        expect.equal(os.listdir(folder), [])
        stage.valkey.wait_idle()


def test_limit_of_file_size(stage):
    """A value larger than the process may have files, which counts for memory files too: status 71, and none is left"""
    stage.valkey.store('value', b'v' * MIB)
    folder = stage.new_folder()
    done = subprocess.run(['prlimit', '--fsize=65536', ctl(), 'get', 'value', os.path.join(folder, 'file')],
                          stderr=subprocess.PIPE, timeout=60,
                          env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
    expect.equal(done.returncode, SYSTEM)
    expect.holds(b'File too large' in done.stderr, done.stderr)
    expect.equal(os.listdir(folder), [])


# --- daemon and access


def test_no_daemon(stage):
    """Nobody listens: 69. Something else does: 76"""
    path = os.path.join(stage.new_folder(), 'absent.sock')
    for words in (['exists', 'key'], ['put', 'key', '/proc/version'], ['get', 'key', '-'], ['status']):
        bad(stage, UNAVAILABLE, '--socket', path, *words, says=[path])
    bad(stage, UNAVAILABLE, '--admin-socket', path, 'regions', says=[path])
    bad(stage, USAGE, '--socket', '/' + 'x' * 200, 'status', says=['path'])
    stream = os.path.join(stage.new_folder(), 'stream.sock')
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(stream)
        other.listen(1)
        bad(stage, PROTOCOL, '--socket', stream, 'exists', 'key', says=[stream])
        bad(stage, PROTOCOL, '--socket', stream, 'status', says=[stream])
    # The wrong one of the daemon's own sockets.
    bad(stage, PROTOCOL, '--admin-socket', stage.daemon.path, 'regions')
    bad(stage, PROTOCOL, '--socket', stage.daemon.admin_path, 'exists', 'key')


class Impostor:
    """Accepts one connection, answers each packet with the next of `answers`, then closes or stays mute."""

    def __init__(self, stage, answers, mute=False):
        self.path = os.path.join(stage.new_folder(), 'impostor.sock')
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.answers, self.mute = answers, mute
        self.over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        peer, _ = self.listener.accept()
        with peer:
            for answer in self.answers:
                peer.recv(65536)
                peer.send(answer)
            peer.recv(65536)
            if self.mute:
                self.over.wait(20)


def answer(number, result):
    return json.dumps({'jsonrpc': '2.0', 'id': number, 'result': result}).encode()


def test_strange_answers(stage):
    """Answers that cannot be understood: 76. None at all: 69, within --deadline"""
    def ask(*answers, mute=False):
        deadline = '300' if mute else '20000'
        return ['--admin-socket', Impostor(stage, answers, mute).path, 'regions', '--deadline', deadline]

    for strange in (b'no JSON', b'{}', answer(9, {}), answer(1, {}), answer(1, {'regions': 7}), answer(1, [1]),
                    answer(1, {'regions': [], 'next': 0}), answer(1, {'regions': [], 'next': 'x'})):
        bad(stage, PROTOCOL, *ask(strange))
    bad(stage, PROTOCOL, *ask(answer(1, {'regions': [], 'next': 5}), answer(2, {'regions': [], 'next': 5})))
    bad(stage, UNAVAILABLE, *ask(), says=['ended'])
    start = time.monotonic()
    bad(stage, UNAVAILABLE, *ask(mute=True), says=['300 ms'])
    expect.holds(time.monotonic() - start < 10, 'it waited')
    closing = b'{"jsonrpc":"2.0","method":"session.closed","params":{"code":-17,"reason":"stopping"}}'
    bad(stage, AGAIN, *ask(closing), says=['stopping'])
    unknown = b'{"jsonrpc":"2.0","method":"news.of.tomorrow","params":{}}'
    expect.equal(run(stage, *ask(unknown, mute=True)).returncode, UNAVAILABLE)


def test_server_down(stage):
    """The Valkey server cannot be reached: 69; status still answers"""
    daemon = stage.other_daemon(address='127.0.0.1:1')
    for words in (['exists', 'key'], ['get', 'key', '-'], ['put', 'key', '/proc/version']):
        expect.equal(run(stage, *words, daemon=daemon).returncode, UNAVAILABLE, words)
    expect.holds(b'NOT usable: ' in good(stage, 'status', daemon=daemon), 'status')


def test_deadline(stage):
    """--deadline: 75, and whether the value may have been stored"""
    good(stage, 'put', 'late', '-', data=b'x')  # the connection is there: the time is enough to send it
    with stage.valkey.faults(test_delay_before_reply_ms=5000):
        bad(stage, AGAIN, 'put', 'late', '-', '--deadline', '1000', data=b'x', says=['deadline', 'may have been'])
    stage.valkey.wait_idle()
    stage.valkey.store('late', b'x')
    with stage.valkey.faults(test_delay_before_reply_ms=5000):
        bad(stage, AGAIN, 'get', 'late', '-', '--deadline', '1000', says=['deadline'])
    stage.valkey.wait_idle()


def test_policies(stage):
    """What the daemon's policy adds to a put is told, and who refused a value"""
    daemon = stage.other_daemon(config={'policy.default_ttl_ms': 900_000, 'policy.max_value_bytes': 5})
    told = json.loads(good(stage, 'put', '--json', 'key', '-', data=b'12345', daemon=daemon))
    expect.equal(told['ttl_applied'], True)
    text = bad(stage, INPUT, 'put', 'key', '-', data=b'123456', daemon=daemon, says=['max_value_bytes', '6 bytes'])
    expect.holds('Valkey server' not in text, text)


def test_no_room_for_a_session(stage):
    """A daemon that has as many sessions as it may: 75, try again later"""
    daemon = stage.other_daemon(config={'limits.sessions': 1})
    with stage.session(daemon):
        for command in (['exists', 'key'], ['status'], ['--admin-socket', daemon.admin_path, 'clients']):
            bad(stage, AGAIN, *command, daemon=daemon, says=['[limits] sessions = 1'])


def test_no_access(stage):
    """A socket that another user may not use: 77, and the group that is needed"""
    need_root()
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY) and not entry.gr_mem)
    daemon = stage.other_daemon(config={'socket main.mode': '0660', 'socket main.group': group.gr_name})
    words = [group.gr_name, 'group', daemon.path]
    for command in (['exists', 'key'], ['status'], ['get', 'key', '-']):
        text = bad(stage, NO_ACCESS, *command, daemon=daemon, user=NOBODY, says=words)
        expect.holds('usermod' in text, text)
    good(stage, 'status', daemon=daemon)
    bad(stage, NO_ACCESS, '--admin-socket', daemon.admin_path, 'clients', user=NOBODY, says=['owner', 'root'])
    os.chmod(daemon.folder, 0o750)
    os.chown(daemon.folder, 0, group.gr_gid)
    bad(stage, NO_ACCESS, 'status', daemon=daemon, user=NOBODY, says=[group.gr_name, daemon.folder])
    os.chmod(daemon.folder, 0o777)


# --- status and lists


def test_status(stage):
    """status: for people and as JSON, on both sockets"""
    told = json.loads(good(stage, 'status', '--json'))
    expect.equal((told['fabric']['provider'], told['daemon']['draining'], 'session' in told), ('tcp', False, True))
    expect.equal('session' in json.loads(admin(stage, 'status', '--json')), False)
    text = good(stage, 'status').decode()
    for word in ('glide-rdmad ', 'provider tcp', 'is up', 'registered', 'region_bytes', f'uid {os.getuid()} '):
        expect.holds(word in text, f'{word!r} is missing in {text}')
    expect.holds('limits' not in admin(stage, 'status').decode(), 'of the admin socket')


def rows(text):
    """Cells of a table: none of these holds two blanks."""
    return [re.split(' {2,}', line.strip()) for line in text.decode().splitlines()]


def test_lists(stage):
    """clients, regions, transfers and nodes: tables and JSON (users: see test_quotas.py)"""
    stage.valkey.store('value', b'v' * 100)
    with stage.memory(3 * MIB) as memory, stage.session() as session:
        region = session.register(memory, label='for \x1b[31m people')
        lines = rows(admin(stage, 'regions'))
        expect.equal(lines[0], ['ID', 'SESSION', 'REGION', 'UID', 'PID', 'SOCKET', 'SIZE', 'ACCESS', 'SHARED',
                                'IN USE', 'STATE', 'LABEL'])
        expect.equal(lines[1][2:], ['1', str(os.getuid()), str(os.getpid()), 'main', '3.0 MiB', 'rw', 'no', '0',
                                    'open', r'for \x1b[31m people'])
        expect.equal(len(lines), 2)
        entries = json.loads(admin(stage, 'regions', '--json'))['regions']
        expect.equal([(entry['size'], entry['label']) for entry in entries], [(3 * MIB, 'for \x1b[31m people')])
        sessions = json.loads(admin(stage, 'clients', '--json'))['clients']
        expect.holds(os.getpid() in [entry['pid'] for entry in sessions], sessions)
        expect.holds([line for line in rows(admin(stage, 'clients')) if str(os.getpid()) in line], 'clients')
        expect.equal(len(rows(admin(stage, 'transfers'))), 1)
        session.get(region, 0, 100, 'value')
        stage.valkey.process.freeze()  # so that it does not end before it is listed
        number = session.start_get(region, 0, 100, 'value')
        session.call('status')  # it has been read
        line = rows(admin(stage, 'transfers'))[1]
        expect.equal((line[4], line[6]), ('get', '100 B'))
        stage.valkey.process.thaw()
        session.wait(number)
        expect.equal(rows(admin(stage, 'nodes'))[1][:6],
                     [f'127.0.0.1:{stage.valkey.port}', 'primary', '16384', '0', 'up', 'tcp'])
        expect.equal(json.loads(admin(stage, 'nodes', '--json'))['nodes'][0]['state'], 'up')


def test_pages(stage):
    """Long lists: all pages, every entry once"""
    with stage.memory(MIB) as memory, stage.session() as session:
        for number in range(600):
            session.register(memory, size=4096, label=f'label {number}')
        entries = json.loads(admin(stage, 'regions', '--json'))['regions']
        expect.equal([entry['label'] for entry in entries], [f'label {number}' for number in range(600)])
        expect.equal(len(rows(admin(stage, 'regions'))), 601)


# --- the command line


def test_usage(stage):
    """Wrong use: status 64, and what is wrong"""
    for words in ([], ['nosuch'], ['put'], ['put', 'key'], ['put', 'key', 'a', 'b'], ['get', 'key'], ['exists'],
                  ['info', 'a', 'b'], ['status', 'x'], ['regions', 'x'], ['--ttl', '5', 'get', 'key', '-'],
                  ['--checksum', 'get', 'key', '-'], ['regions', '--socket', '/x'],
                  ['exists', 'k', '--admin-socket', '/'], ['status', '--quiet'],
                  ['put', '--ttl', '0', 'key', '-'], ['put', '--ttl', '1.5', 'key', '-'],
                  ['put', '--ttl', '-1', 'key', '-'], ['put', '--ttl', '99999999999999999999', 'key', '-'],
                  ['put', '--deadline', 'soon', 'key', '-'], ['get', 'key', '-', '--json'],
                  ['--socket', '', 'status'], ['--admin-socket', '', 'clients'], ['doctor', '--config', ''],
                  ['metrics', '--json'], ['exists', '--json', '-q', 'key'],
                  ['status', '--socket', '/x', '--admin-socket', '/y']):
        bad(stage, USAGE, *words)
    done = run(stage, '--no-such-option')
    expect.equal(done.returncode, USAGE)


def test_help(stage):
    """--help names every command and option, and the manual page has them all"""
    text = good(stage, '--help').decode()
    page = read(PAGE).decode()
    options = page[page.index('# OPTIONS'):page.index('# PROGRESS')]
    described = set(re.findall(r'^(?:\*-\w\*, )?\*(--[\w-]+)\*', options, flags=re.M))
    expect.equal(described, set(re.findall(r'--[a-z][\w-]*', text)))
    commands = set(re.findall(r'^  (\w+) ', text, flags=re.M))
    expect.equal(set(re.findall(r'\*(\w+)\*', ' '.join(
        line for line in page[page.index('# COMMANDS'):page.index('# OPTIONS')].splitlines()
        if line.startswith('*')))), commands)
    expect.holds(re.match(r'glide-rdmactl \d+\.\d+\.\d+', good(stage, '--version').decode()), 'version')


def test_exit_status(stage):
    """The manual page documents the exit status of the sources"""
    source = read(os.path.join(os.path.dirname(PAGE), '..', 'client', 'ctl', 'exit.h')).decode()
    page = read(PAGE).decode()
    part = page[page.index('# EXIT STATUS'):page.index('# ENVIRONMENT')]
    expect.equal(re.findall(r'^\*(\d+)\*', part, flags=re.M), re.findall(r' = (\d+),', source))


# --- progress


def on_terminal(stage, *words, feed=None):
    """Runs with a terminal as standard error; returns status and what came there."""
    master, slave = pty.openpty()
    child = subprocess.Popen([ctl(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave,
                             env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
    os.close(slave)
    if feed is not None:
        feed(child.stdin)
    child.stdin.close()
    shown = b''
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # EIO: the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    child.stdout.read()
    child.stdout.close()
    return child.wait(20), shown.decode()


def slowly(pipe):
    for _ in range(4):
        pipe.write(b'x' * 1000)
        pipe.flush()
        time.sleep(0.25)  # work that takes a while


def check_taken_away(shown):
    """What is left on the line at the end is blank."""
    expect.equal(shown.split('\r')[-1], '')
    expect.equal(shown.split('\r')[-2].strip(), '')


def test_progress(stage):
    """On a terminal long work shows a line, and takes it away; short work shows none"""
    status, shown = on_terminal(stage, 'put', 'slow', '-', feed=slowly)
    expect.equal(status, 0)
    expect.holds(re.search(r'reading [|/\\-] \d', shown), repr(shown))
    check_taken_away(shown)
    with stage.valkey.faults(test_delay_before_reply_ms=1500):
        status, shown = on_terminal(stage, 'get', 'slow', '-')
    expect.equal(status, 0)
    expect.holds(len(set(re.findall(r'fetching ([|/\\-]) 3\.9 KiB', shown))) > 1, repr(shown))
    check_taken_away(shown)
    expect.equal(on_terminal(stage, 'exists', 'slow'), (0, ''))


def test_progress_of_known_size(stage):
    """A bar with a percentage, where the size is known"""
    stage.valkey.store('value', b'v' * MIB)
    fifo = os.path.join(stage.new_folder(), 'fifo')
    os.mkfifo(fifo)

    def drain():
        with open(fifo, 'rb') as pipe:
            time.sleep(1)  # a slow reader: long work
            pipe.read()

    reader = threading.Thread(target=drain)
    reader.start()
    status, shown = on_terminal(stage, 'get', '--quiet', 'value', fifo)
    reader.join()
    expect.equal((status, shown), (0, ''), '--quiet')
    reader = threading.Thread(target=drain)
    reader.start()
    status, shown = on_terminal(stage, 'get', 'value', fifo)
    reader.join()
    expect.equal(status, 0)
    expect.holds(re.search(r'writing \[[#-]{30}\] +\d+%  .* of 1\.0 MiB', shown), repr(shown))
    check_taken_away(shown)


def test_progress_before_an_error(stage):
    """An error stands alone on its line"""
    with stage.valkey.faults(test_delay_before_reply_ms=5000):
        status, shown = on_terminal(stage, 'put', 'late', '-', '--deadline', '2000', feed=lambda pipe: pipe.write(b'x'))
    stage.valkey.wait_idle()
    expect.equal(status, AGAIN)
    expect.holds(re.search(r'storing', shown), repr(shown))
    expect.holds(re.search(r'\r +\rglide-rdmactl: put: [^\r]*\r\n$', shown), repr(shown))


def test_progress_of_a_measurement(stage):
    """bench shows how much it has moved"""
    status, shown = on_terminal(stage, 'bench', '--size', '64K', '--seconds', '1')
    expect.equal(status, 0)
    expect.holds(re.search(r'moving [|/\\-] \d', shown), repr(shown))
    check_taken_away(shown)


def test_no_progress_without_terminal(stage):
    """Where standard error is no terminal nothing is shown, however long it takes"""
    with stage.valkey.faults(test_delay_before_reply_ms=1200):
        good(stage, 'put', 'quiet', '-', data=b'x' * 5000)


tap.run(globals(), Stage())
