"""Programs whose standard streams are closed, full, or the file that a value goes to."""
import json
import os
import signal
import subprocess

from lib import expect, paths, tap, wait
from lib.daemon import ini
from lib.stage import Stage

USAGE, IO = 64, 74
OUTPUT, ERRORS = 1, 2


def ctl(stage, *words, closed=(), **arguments):
    def close():
        for number in closed:
            os.close(number)

    streams = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **arguments}
    return subprocess.run([paths.built('GRD_CTL'), *words], timeout=60, preexec_fn=close,
                          env=paths.environment(GLIDE_RDMAD_SOCKET=stage.daemon.path), **streams)


def write_config(daemon):
    with open(daemon.config_path, 'w', encoding='utf-8') as file:
        file.write(ini(daemon.sections))
    return daemon.config_path


def test_daemon_without_streams(stage):
    """A daemon that was started with closed streams serves, and ends in order"""
    daemon = stage.other_daemon(start=False)
    path = write_config(daemon)
    script = 'exec "$0" --config "$1" <&- >&- 2>&-'
    child = subprocess.Popen(['sh', '-c', script, paths.daemon(), path], env=paths.environment())
    try:
        wait.until(lambda: ctl(stage, '--socket', daemon.path, 'status').returncode == 0, 'the daemon serves')
        for number in (0, OUTPUT, ERRORS):
            expect.equal(os.readlink(f'/proc/{child.pid}/fd/{number}'), '/dev/null')
        child.send_signal(signal.SIGTERM)
        expect.equal(child.wait(60), 0)
    finally:
        child.kill()
        child.wait()


def test_tool_without_streams(stage):
    """A value has nowhere to go where standard output is closed; no socket or memory file is taken for it"""
    stage.valkey.store('value', b'v' * 100)
    done = ctl(stage, 'get', 'value', '-', closed=[OUTPUT])
    expect.equal(done.returncode, IO)
    expect.holds(b'Bad file descriptor' in done.stderr, done.stderr)
    path = os.path.join(stage.new_folder(), 'file')
    expect.equal(ctl(stage, 'get', 'value', path, '-q', closed=[0, OUTPUT, ERRORS]).returncode, 0)
    with open(path, 'rb') as file:
        expect.equal(file.read(), b'v' * 100)
    expect.equal(ctl(stage, 'get', 'absent', path, closed=[ERRORS]).returncode, 1)


def test_daemon_options_to_a_full_device(stage):
    """What an option of the daemon prints has arrived, or the status says that it has not"""
    path = write_config(stage.daemon)
    for words in (['--print-example-config'], ['--version'], ['--help'], ['--check-config', '--config', path]):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([paths.daemon(), *words], stdout=full, stderr=subprocess.PIPE, timeout=60,
                                  env=paths.environment())
        expect.equal(done.returncode, 1, words)
        expect.holds(b'cannot write standard output' in done.stderr, done.stderr)


def test_value_appended(stage):
    """A path that leads to the file of standard output: the value is appended there, nothing is replaced"""
    stage.valkey.store('value', b'value')
    log = os.path.join(stage.new_folder(), 'log')
    with open(log, 'wb') as file:
        file.write(b'before, ')
    for path in ('/dev/stdout', log):
        with open(log, 'ab') as file:
            done = ctl(stage, 'get', 'value', path, stdout=file)
        expect.equal((done.returncode, done.stderr), (0, b''), path)
    with open(log, 'rb') as file:
        expect.equal(file.read(), b'before, valuevalue')


def test_value_to_the_pipe_of_the_output(stage):
    """/dev/stdout is a pipe: the value goes there, alone"""
    stage.valkey.store('value', b'value')
    expect.equal(ctl(stage, 'get', 'value', '/dev/stdout').stdout, b'value')
    done = ctl(stage, 'get', '--json', 'value', '/dev/stdout')
    expect.equal((done.returncode, done.stdout), (USAGE, b''))
    # Two outputs that are not one.
    done = ctl(stage, 'get', '--json', 'value', '/dev/null')
    expect.equal(json.loads(done.stdout)['length'], 5)


tap.run(globals(), Stage())
