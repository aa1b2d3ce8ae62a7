"""A host with systemd on which this build is installed, and the frame of the tests that run on it.

A test file has a class with the tests, in the order in which they are run, each beginning where the one before ended,
and ends with sys.exit(host.main(THE_CLASS, __file__)). It is used as

    test_X.py --build BUILD --source SOURCE --prefix PREFIX --sysconfdir SYSCONFDIR

Boots systemd-nspawn on an overlay of $GRD_TREE_ROOT (a Debian 13 root; default "/"), installs the build there, runs a
valkey-server with the test module beside it. TAP on standard output; skipped with the reason where it cannot run.
Needs root; leaves no process, mount or control group behind.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import isolation
from box import Box, BoxError, ThisHost

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'integration'))
from lib.ports import free_port # noqa: E402 pylint: disable=wrong-import-position

SERVICE = 'glide-rdmad.service'
SOCKETS = ('glide-rdmad.socket', 'glide-rdmad-admin.socket')
UNITS = (SERVICE, *SOCKETS)
CLIENT_PATH = '/run/glide-rdmad/glide-rdmad.sock'
ADMIN_PATH = '/run/glide-rdmad/admin.sock'
SYSTEM = '/etc/systemd/system'
VALUE_BYTES = 4 << 20

# Exit statuses of the isolated part: no test result may follow these.
SKIPPED, BAILED_OUT = 77, 99

VALKEY_UNIT = """[Service]
Type=notify
ExecStart=/usr/bin/valkey-server --supervised systemd --bind 127.0.0.1 --port {port} --save "" --dir /tmp \\
  --loadmodule /opt/largeobj.so
"""
CONFIG_TEXT = """[valkey]
address = 127.0.0.1:{port}
connections = 2
[fabric]
provider = tcp
required = yes
[memory]
pinned_limit = 256M
"""
# What is copied into /opt: from the build, from the sources.
BUILT = ('tests/largeobj/largeobj.so', 'tests/integration/fake-fabric.so')
SCRIPTS = ('tests/python/protocol_client.py', 'tests/systemd/connect.py', 'tests/systemd/hold.py',
           'tests/systemd/probe.py')


class Skip(Exception):
    """One test cannot run here."""


class Host:
    """Base of the classes with tests. valkey_unit, config_text: texts of the two files, with {port}."""

    valkey_unit, config_text = VALKEY_UNIT, CONFIG_TEXT

    def __init__(self, box, arguments):
        self.box = box
        self.arguments = arguments
        self.config = os.path.join(arguments.sysconfdir, 'glide-rdmad/glide-rdmad.conf')
        self.demo = os.path.join(arguments.prefix, 'bin/glide-rdmad-demo')
        self.ctl = os.path.join(arguments.prefix, 'bin/glide-rdmactl')
        self.port = 0

    def install(self):
        """As an operator does it, and two users: member, of the group glide-rdmad, and outsider."""
        subprocess.run(['meson', 'install', '-C', self.arguments.build, '--destdir', self.box.root, '--no-rebuild',
                        '--quiet'], check=True, stdout=sys.stderr)
        for path in BUILT:
            shutil.copy(os.path.join(self.arguments.build, path), self.box.root + '/opt')
        for path in SCRIPTS:
            shutil.copy(os.path.join(self.arguments.source, path), self.box.root + '/opt')
        self.port = free_port()
        self.write(self.config, self.config_text.format(port=self.port))
        self.write(f'{SYSTEM}/test-valkey.service', self.valkey_unit.format(port=self.port))
        self.box.must('ldconfig')
        self.box.must('systemd-sysusers')
        for user, group in (('member', ['--groups=glide-rdmad']), ('outsider', [])):
            self.box.must('useradd', '--no-create-home', *group, user)
        self.box.must('systemctl', 'daemon-reload')
        self.box.must('systemctl', 'start', 'test-valkey')

    # --- files inside

    def write(self, path, text):
        os.makedirs(os.path.dirname(self.box.root + path), exist_ok=True)
        with open(self.box.root + path, 'w', encoding='utf-8') as file:
            file.write(text)

    def drop_in(self, text, unit=SERVICE):
        """Replaces the drop-in of the tests. The limit of starts in a time counts anew: tests start more often."""
        self.write(f'{SYSTEM}/{unit}.d/test.conf', text)
        self.box.must('systemctl', 'daemon-reload')
        self.box.run('systemctl', 'reset-failed', unit)

    def overlay(self, text):
        """Replaces the file of the tests in conf.d."""
        self.write(os.path.join(os.path.dirname(self.config), 'conf.d/test.conf'), text)

    def files(self):
        """Mode, owner, group and inode of both sockets."""
        return self.box.must('stat', '--format=%n %F %a %U %G %i', CLIENT_PATH, ADMIN_PATH)

    # --- units

    def properties(self, unit, *names):
        lines = self.box.must('systemctl', 'show', unit, *(f'--property={name}' for name in names)).splitlines()
        return dict(line.split('=', 1) for line in lines)

    def property(self, name, unit=SERVICE):
        return self.properties(unit, name)[name]

    def expect(self, unit, **wanted):
        found = self.properties(unit, *wanted)
        wrong = [f'{name}={found.get(name)} and not {value}' for name, value in wanted.items()
                 if found.get(name) != value]
        assert not wrong, f'{unit}: {", ".join(wrong)}'

    def daemon_pid(self):
        return int(self.property('MainPID'))

    def wait_for_other_daemon(self, pid, seconds=60):
        """Until a daemon that is not `pid` is ready."""
        wait(lambda: self.daemon_pid() not in (0, pid) and self.property('SubState') == 'running', seconds,
             f'no other daemon than {pid}')

    def read_journal(self, *options):
        """With all that was said before."""
        self.box.must('journalctl', '--sync')
        return self.box.must('journalctl', '--output=cat', *options)

    def journal(self, *options):
        return self.read_journal(f'--unit={SERVICE}', *options)

    def valkey(self, *words):
        return self.box.must('valkey-cli', '-p', str(self.port), *words)

    def status(self):
        return json.loads(self.box.must(self.ctl, '--admin-socket', ADMIN_PATH, '--json', 'status'))

    # --- users

    @staticmethod
    def as_user(user, *command):
        """The user's own groups, no capability, memlock limit of 64 KiB."""
        return ('setpriv', f'--reuid={user}', f'--regid={user}', '--init-groups', '--bounding-set=-all',
                '--inh-caps=-all', '--no-new-privs', 'prlimit', '--memlock=65536:65536', '--', *command)

    def move_value(self, user='member', path=CLIENT_PATH):
        said = self.box.must(*self.as_user(user, self.demo, '--socket', path, '--size', str(VALUE_BYTES)))
        assert 'all bytes and checksums agree' in said and said.count('path rdma') == 2, said

    def connect(self, user, path, *file):
        """The command of a client that connects, once or until the file is gone: see connect.py."""
        return self.as_user(user, 'python3', '/opt/connect.py', path, *file)


def wait(holds, seconds, what):
    """Until holds() is true; asks the manager, which tells nobody by itself."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f'{what} after {seconds} s'
        time.sleep(0.05)


def tests_of(tests):
    return [(name, test) for name, test in vars(tests).items() if name.startswith('test_')]


def report(number, test, error, box):
    """One result; True when it failed."""
    if error is None:
        print(f'ok {number} - {test.__doc__}', flush=True)
    elif isinstance(error, Skip):
        print(f'ok {number} - {test.__doc__} # SKIP {error}', flush=True)
    else:
        lines = [str(error)] if isinstance(error, AssertionError) else traceback.format_exception(error)
        state = box.run('systemctl', 'status', '--no-pager', '--lines=20', '--full', *UNITS).stdout
        print(f'not ok {number} - {test.__doc__}')
        print(*(f'# {line}' for line in ''.join(lines).splitlines() + state.splitlines()), sep='\n', flush=True)
        return True
    return False


def run_tests(tests, box, arguments):
    """The exit status, without the plan."""
    host, failed = tests(box, arguments), 0
    for number, (name, test) in enumerate(tests_of(tests), 1):
        failure, begin = None, time.monotonic()
        try:
            test(host)
        except Exception as error: # pylint: disable=broad-except
            failure = error
        print(f'# {time.monotonic() - begin:.1f} s')
        if report(number, test, failure, box):
            failed += 1
            if name == 'test_install':
                print('Bail out! nothing to test', flush=True)
                return BAILED_OUT
    return 1 if failed else 0


def inside(tests, arguments):
    try:
        box = Box(arguments.source, arguments.inside).__enter__()
    except BoxError as error:
        print(f'1..0 # SKIP systemd does not boot in systemd-nspawn here: {error}', flush=True)
        return SKIPPED
    try:
        print(f'1..{len(tests_of(tests)) + 1}')
        return run_tests(tests, box, arguments)
    finally:
        box.__exit__()


def why_not():
    """Why systemd cannot be booted here; None if it may be tried."""
    tree = os.environ.get('GRD_TREE_ROOT', '/')
    if os.geteuid() != 0:
        return 'needs root'
    for tool in ('systemd-nspawn', 'unshare', 'nsenter', 'setpriv', 'pivot_root', 'setsid', 'pgrep', 'meson', 'bash'):
        if shutil.which(tool) is None:
            return f'no {tool} here'
    for path in ('usr/lib/systemd/systemd', 'usr/bin/valkey-server', 'usr/bin/python3', 'usr/bin/setpriv'):
        if not os.path.exists(os.path.join(tree, path)):
            return f'no /{path} in the root file system {tree}'
    if not isolation.writable_groups():
        return 'no control group file system that can be written'
    trial = subprocess.run(['unshare', '--mount', '--propagation', 'unchanged', '--pid', '--fork', 'true'],
                           stderr=subprocess.PIPE, text=True, check=False)
    if trial.returncode != 0:
        return f'no new namespaces: {trial.stderr.strip()}'
    return None


def arguments_of_tests():
    parser = argparse.ArgumentParser()
    for name in ('build', 'source', 'prefix', 'sysconfdir'):
        parser.add_argument(f'--{name}', required=True)
    parser.add_argument('--inside', metavar='FOLDER', help='isolated already; the folder is for the box')
    return parser.parse_args()


def main_on_this_host(tests):
    """As main(), but on the very machine that the tests run on: a throw-away guest with systemd."""
    print(f'1..{len(tests_of(tests))}', flush=True)
    return run_tests(tests, ThisHost(), arguments_of_tests())


def main(tests, path):
    arguments = arguments_of_tests()
    if arguments.inside is not None:
        return inside(tests, arguments)
    reason = why_not()
    if reason is not None:
        print(f'1..0 # SKIP {reason}')
        return 0
    with tempfile.TemporaryDirectory(prefix='glide-rdmad-systemd.') as folder:
        status, left = isolation.run([sys.executable, os.path.abspath(path), *sys.argv[1:], '--inside', folder])
    if status in (SKIPPED, BAILED_OUT):
        print(*left, file=sys.stderr)
        return 0 if status == SKIPPED and not left else 1
    number = len(tests_of(tests)) + 1
    print(f'{"not ok" if left else "ok"} {number} - no control group is left')
    for folder in left:
        print(f'# {folder}')
    return 1 if left else status
