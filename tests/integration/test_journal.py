"""The journal: entries with fields and ids, from a daemon whose standard error is the journal's stream."""
import os
import socket
import threading

from lib import expect, tap, wait
from lib.daemon import Daemon
from lib.metrics import look
from lib.session import Session
from lib.stage import Stage
from lib.users import as_user

MIB = 1 << 20
IDS = {'ready': '0a1e613b5d9844eca7fe0abb6978d324', 'node_up': '331e4f3a0e4a4a7182eb5c245a913c8b',
       'node_down': 'f94ef0529e014dc09d8ca4ec1211085c', 'budget_refused': '02973d2997144354853ceb0dc62d505f',
       'client_refused': 'ff460ea6b3a544bf8ba3c003b77b37ab', 'ended': '4ae134abdc7f4f14b18e6627bdf7a4ba',
       'stopping': 'c3b67e9340864595b4196d8fc3ad279a'}


def deep_socket():
    """One that holds many datagrams until they are read. The kernel takes their number from the network namespace that
    the thread is in which makes the socket: by default ten, which a daemon may log while this process waits."""
    made = []

    def make():
        try:
            os.unshare(os.CLONE_NEWNET)
            with open('/proc/sys/net/unix/max_dgram_qlen', 'w', encoding='ascii') as file:
                file.write('10000')
        except (AttributeError, OSError) as error:
            print(f'# the queue of the journal is as short as the kernel makes it: {error}')
        made.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


class Journal:
    """Plays journald: a datagram is an entry."""

    def __init__(self, folder, deep=True):
        self.path = os.path.join(folder, 'journal')
        self.socket = deep_socket() if deep else socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(self.path)
        self.entries = []

    def read(self):
        try:
            while True:
                lines = self.socket.recv(65536).decode().splitlines()
                self.entries.append(dict(line.split('=', 1) for line in lines))
        except BlockingIOError:
            return self.entries

    def find(self, event):
        return [entry for entry in self.read() if entry.get('MESSAGE_ID') == IDS[event]]

    def one(self, event):
        return wait.until(lambda: self.find(event), lambda: f'{event} among {self.entries}')[0]


def start(stage, journal, valkey=None, **config):
    """A daemon whose standard error is what JOURNAL_STREAM names."""
    daemon = Daemon(stage.new_folder(), f'127.0.0.1:{(valkey or stage.valkey).port}', start=False,
                    config={name.replace('__', '.'): value for name, value in config.items()})
    stage._others.append(daemon)  # pylint: disable=protected-access
    st = os.stat(daemon.log_path)
    daemon.environment = {'JOURNAL_STREAM': f'{st.st_dev}:{st.st_ino}', 'GLIDE_RDMAD_TEST_JOURNAL': journal.path}
    daemon.start()
    return daemon


def test_entries(stage):
    """Start, server, refusals and end: message, priority, id and fields; standard error stays empty"""
    journal = Journal(stage.new_folder())
    daemon = start(stage, journal, memory__pinned_limit='1M', **{'policy uid 20001__sessions': 1})
    node = f'127.0.0.1:{stage.valkey.port}'
    ready = journal.one('ready')
    expect.equal((ready['PRIORITY'], ready['SYSLOG_IDENTIFIER'], ready['MESSAGE']),
                 ('5', 'glide-rdmad', f'ready: tcp, Valkey {node}'))
    expect.equal(journal.one('node_up')['NODE'], node)
    with stage.memory(2 * MIB) as memory, as_user(lambda: Session(daemon.path), 20001) as client:
        number = client.request('region.register', fds=(memory.fd,), type='memfd', size=2 * MIB)
        expect.equal(client.outcome(number), 'over_budget')
        refused = journal.one('budget_refused')
        with Session(daemon.admin_path, hello=False) as admin:
            session = next(entry['id'] for entry in admin.call('clients')['clients'] if entry['uid'] == 20001)
        expect.equal((refused['UID'], refused['REQUEST'], refused['SESSION'], refused['PRIORITY']),
                     ('20001', str(number), str(session), '4'))
        with as_user(lambda: Session(daemon.path, hello=False), 20001) as second:
            second.wait_notification('session.closed')
        expect.equal(journal.one('client_refused')['UID'], '20001')
    expect.equal(daemon.stop(), 0)
    for event in ('stopping', 'ended'):
        journal.one(event)
    expect.equal(daemon.process.log(), '')


def test_transfers_and_nodes(stage):
    """A transfer that is taken back, and a server that dies, are told by their numbers and address"""
    journal = Journal(stage.new_folder())
    valkey = stage.other_valkey()
    daemon = start(stage, journal, valkey, daemon__log_level='info')
    node = f'127.0.0.1:{valkey.port}'
    with stage.memory(MIB) as memory, Session(daemon.path) as client, Session(daemon.admin_path, hello=False) as admin:
        region = client.register(memory)
        client.set(region, 0, 10, 'secret key')
        with valkey.faults(test_never_answer='yes'):
            number = client.start_get(region, 0, 10, 'secret key')
            entry = wait.until(lambda: admin.call('transfers')['transfers'], 'the transfer')[0]
            wait.until(lambda: admin.call('transfers')['transfers'][0]['state'] == 'sent', 'it was sent')
            client.call('transfer.cancel', id=number)
            expect.equal(client.outcome(number), 'cancelled')
        revoking = [found for found in journal.read() if 'revoking' in found['MESSAGE']]
        expect.equal([(found['TRANSFER'], found['SESSION'], found['NODE']) for found in revoking],
                     [(str(entry['id']), str(entry['session']), node)])
        valkey.process.kill()
        down = journal.one('node_down')
        expect.equal((down['NODE'], down['PRIORITY']), (node, '4'))
    expect.holds(not any('secret key' in str(found) for found in journal.read()), 'keys are not logged')


def test_keys(stage):
    """Of keys, debug shows one line a transfer, escaped; info nothing; values are in no line"""
    for level, lines in (('debug', 1), ('info', 0)):
        journal = Journal(stage.new_folder())
        daemon = start(stage, journal, daemon__log_level=level)
        with stage.memory(4096, fill=ord('V')) as memory, Session(daemon.path) as client:
            client.set(client.register(memory), 0, 64, b'a key "of\n\xff\x1b[2J' + b'k' * 1000)
        shown = [entry['MESSAGE'] for entry in journal.read() if ' key ' in entry['MESSAGE'] or 'kk' in entry['MESSAGE']]
        expect.equal(len(shown), lines, level)
        for message in shown:
            expect.holds('set of key "a key \\x22of\\x0a\\xff\\x1b[2Jkkk' in message and message.endswith('k..."'), message)
            expect.holds(len(message) < 300, message)
        expect.holds(not any('VVVV' in str(entry) for entry in journal.entries), 'values are not logged')


def test_full_journal(stage):
    """A journal that takes nothing costs lines, which the metrics count, and no request"""
    journal = Journal(stage.new_folder(), deep=False)
    daemon = start(stage, journal)
    for _ in range(700):  # more lines than the queue of a socket holds
        with Session(daemon.path) as client:
            client.call('status')
    with Session(daemon.admin_path, hello=False) as admin:
        admin.call('status')
    expect.holds(look(daemon).get('log_lines_left_out_total') > 0, 'lines were left out')


tap.run(globals(), Stage())
