"""The daemon's command line, configuration errors, and the programs that come with it."""
import os
import re
import subprocess

from lib import expect, paths, tap
from lib.daemon import ini
from lib.stage import Stage


def daemon(*arguments):
    return run([paths.daemon(), *arguments])


def run(argv, **environment):
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
                          env=paths.environment(**environment))


def write(stage, text, name='glide-rdmad.conf'):
    path = os.path.join(stage.new_folder(), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    return path


def check_refused(stage, text, line, *words):
    path = write(stage, text)
    done = daemon('--check-config', '--config', path)
    expect.holds(done.returncode != 0, f'accepted: {text}')
    output = done.stdout + done.stderr
    if line:
        expect.holds(f'{path}:{line}:' in output, f'file and line {line} of {text!r} are missing in {output!r}')
    for word in words:
        expect.holds(word in output, f'{word!r} is missing in {output!r}')


def test_version(stage):
    """--version: the daemon's and libfabric's version, and the providers that are there"""
    done = daemon('--version')
    expect.equal(done.returncode, 0)
    expect.holds(re.search(r'glide-rdmad \d+\.\d+\.\d+', done.stdout), done.stdout)
    expect.holds(re.search(r'libfabric \d+\.\d+', done.stdout), done.stdout)
    expect.holds('tcp' in done.stdout, done.stdout)


def test_version_without_fabric(stage):
    """--version without a fabric says so, and succeeds"""
    done = run([paths.daemon(), '--version'], GLIDE_RDMAD_FABRIC_OBJECT='/nonexistent')
    expect.equal(done.returncode, 0)
    expect.holds('/nonexistent' in done.stdout + done.stderr, done)


def test_help(stage):
    """--help: every option, on standard output"""
    done = daemon('--help')
    expect.equal(done.returncode, 0)
    for option in ('--config', '--check-config', '--version', '--help'):
        expect.holds(option in done.stdout, option)


def test_unknown_option(stage):
    """An unknown option, or a surplus word, is refused"""
    for arguments in (['--no-such-option'], ['surplus']):
        done = daemon(*arguments)
        expect.holds(done.returncode != 0, arguments)
        expect.holds(arguments[0] in done.stderr, done.stderr)


def test_good_configuration(stage):
    """--check-config accepts a good file, and starts nothing"""
    path = write(stage, ini({'daemon': {'log_level': 'debug'}, 'valkey': {'address': 'localhost:1'},
                             'socket one': {'path': '/nonexistent/socket', 'mode': '0660'},
                             'limits': {'region_bytes': '4G'}}))
    done = daemon('--check-config', '--config', path)
    expect.equal(done.returncode, 0, done.stderr)
    expect.equal(done.stderr.count('error'), 0, done.stderr)


def test_bad_configuration(stage):
    """Errors name file and line, what came, and what is allowed"""
    check_refused(stage, '[valkey]\n\nadress = x:1\n', 3, 'adress')
    check_refused(stage, '[nosuch]\nkey = 1\n', 2, 'nosuch')
    check_refused(stage, '[daemon]\nlog_level = notice\n[valkey]\nconnections = 0\n', 4, 'connections', '1024')
    check_refused(stage, '[valkey]\nconnections = many\n', 2, 'many')
    check_refused(stage, '[valkey]\nwarm = perhaps\n', 2, 'yes', 'no')
    check_refused(stage, '[fabric]\nmr_max_bytes = 64X\n', 2, '64X')
    check_refused(stage, '[fabric]\nprovider = sockets\n', None, 'sockets', 'efa-direct')
    check_refused(stage, '[fabric]\nmr_max_bytes = 65537\n', None, 'mr_max_bytes')
    check_refused(stage, '[daemon]\nlog_level = loud\n', None, 'loud')
    check_refused(stage, '[valkey]\naddress = nowhere\n', None, 'nowhere')
    check_refused(stage, '[socket]\npath = /x\n', 2, 'socket')
    check_refused(stage, '[socket a]\nmode = 999\n', 2, '999')
    check_refused(stage, 'no section = 1\n', 1)
    check_refused(stage, '[daemon]\nno equals sign\n', 2)


def test_missing_configuration(stage):
    """A file that is not there is named"""
    done = daemon('--check-config', '--config', '/nonexistent.conf')
    expect.holds(done.returncode != 0, 'accepted')
    expect.holds('/nonexistent.conf' in done.stderr, done.stderr)


def test_overlays(stage):
    """Files of conf.d override, by name; an error in one names it"""
    path = write(stage, '[valkey]\nconnections = 0\n')
    folder = os.path.join(os.path.dirname(path), 'conf.d')
    os.mkdir(folder)
    expect.holds(daemon('--check-config', '--config', path).returncode != 0, 'accepted')
    with open(path, 'w', encoding='utf-8') as file:
        file.write('[valkey]\nconnections = 2\n')
    with open(os.path.join(folder, '10-bad.conf'), 'w', encoding='utf-8') as file:
        file.write('[valkey]\nconnections = none\n')
    done = daemon('--check-config', '--config', path)
    expect.holds(done.returncode != 0 and '10-bad.conf:2:' in done.stderr, done.stderr)


def test_bad_configuration_at_start(stage):
    """A start with a bad configuration fails with its reason"""
    path = write(stage, '[valkey]\nconnections = none\n')
    done = daemon('--config', path)
    expect.holds(done.returncode != 0, 'started')
    expect.holds(f'{path}:2:' in done.stderr, done.stderr)


def test_group_that_does_not_exist(stage):
    """A socket's group that does not exist is named"""
    server = stage.other_daemon(config={'socket main.group': 'no-such-group'}, start=False)
    server.begin()
    expect.holds(server.process.wait() != 0, 'started')
    expect.holds('no-such-group' in server.process.log(), server.process.log())


def test_example(stage):
    """The example of the README moves a value"""
    done = run([paths.built('GRD_EXAMPLE')], GLIDE_RDMAD_SOCKET=stage.daemon.path)
    expect.equal((done.returncode, done.stdout), (0, 'fetched, 1048576 bytes\n'))


def test_demo(stage):
    """The demo program moves a value and prints times and path"""
    done = run([paths.built('GRD_DEMO'), '--socket', stage.daemon.path, '--size', '8M'])
    expect.equal(done.returncode, 0, done.stderr)
    expect.holds('GB/s' in done.stdout and 'rdma' in done.stdout, done.stdout)


tap.run(globals(), Stage())
