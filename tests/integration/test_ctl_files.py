"""glide-rdmactl: what it refuses to read, and the files that it writes."""
import os
import signal
import stat
import subprocess

from lib import expect, paths, tap, wait
from lib.ctl import AGAIN, CREATE, DATA, INPUT, IO, SYSTEM, Relay, bad, ctl, good, need_root, read, write, write_file
from lib.memory import MIB
from lib.stage import Stage
from lib.users import NOBODY


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
        done = subprocess.run([ctl(), '--socket', daemon.path, 'put', 'key', '-'], stdin=zero, timeout=100,
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
            done = subprocess.run([ctl(), *words], stdout=full, stderr=subprocess.PIPE, timeout=100,
                                  env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path))
            expect.equal(done.returncode, IO, words)
            expect.holds(b'No space left' in done.stderr, done.stderr)
    read_end, write_end = os.pipe()
    os.close(read_end)
    for words in (['get', 'value', '-'], ['status']):
        done = subprocess.run([ctl(), *words], stdout=write_end, stderr=subprocess.PIPE, timeout=100,
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
                          timeout=100, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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
            stage.valkey.process.freeze()  # so that the answer does not come before the signal
            expect.equal(len(os.listdir(folder)), 1, 'the temporary file')
            child.send_signal(number)
            expect.equal(child.wait(60), -number)
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


tap.run(globals(), Stage())
