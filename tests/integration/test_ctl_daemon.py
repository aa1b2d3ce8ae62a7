"""glide-rdmactl: daemons that answer, do not, or not to this user; status and lists; the command line."""
import grp
import json
import os
import re
import socket
import threading
import time

from lib import expect, tap
from lib.ctl import AGAIN, INPUT, NO_ACCESS, PROTOCOL, UNAVAILABLE, USAGE, admin, bad, good, need_root, read, run
from lib.memory import MIB
from lib.stage import Stage
from lib.users import NOBODY

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'glide-rdmactl.1.scd')


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
                self.over.wait(100)


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
    expect.holds(time.monotonic() - start < 60, 'it waited')
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
    with stage.valkey.faults(test_never_answer='yes'):
        bad(stage, AGAIN, 'put', 'late', '-', '--deadline', '4000', data=b'x', says=['deadline', 'may have been'])
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


tap.run(globals(), Stage())
