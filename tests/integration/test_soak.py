"""Many clients at once do everything in any order, and leave at any moment, while the server misbehaves.

The run is bounded by time, but goes on until enough has happened, however slow the machine. Whatever happened: each
accepted request was answered once, and at the end everything is as it was. GRD_SOAK_SEED repeats a run, as far as its
timing allows; GRD_SOAK_SECONDS makes it longer.
"""
import collections
import os
import random
import re
import select
import socket
import time

from lib import expect, tap, wait
from lib.memory import PAGE, memory_fd
from lib.session import Session
from lib.stage import Stage

SECONDS = float(os.environ.get('GRD_SOAK_SECONDS', 20))
ANSWERS, TRANSFERS = 1000, 300  # enough
LIMIT = SECONDS + 300  # when that takes longer, something stands still
CLIENTS = 12
CONNECTIONS = 4
FILES = 4
FILE_SIZE = 64 * PAGE
KEYS = [f'soak-{n}' for n in range(8)]
FAULTS = [
    {}, {}, {}, {},
    {'test_delay_before_transfer_ms': 30},
    {'test_delay_before_reply_ms': 30},
    {'test_fail_operation': 1},
    {'test_error_while_running': 'yes', 'test_delay_between_chunks_ms': 5},
    {'test_drop_while_running': 'yes'},
    {'test_drop_before_reply': 'yes'},
    {'test_never_answer': 'yes'},
    {'test_set_reply': 1, 'test_get_reply': 6},
    {'test_refuse_hello': 2, 'test_drop_before_reply': 'yes'},
    {'test_hello_garbage': 2, 'test_drop_before_reply': 'yes'},
]


class Client(Session):
    """A session that counts what it sent, and remembers what it has."""

    def __init__(self, path, chance):
        super().__init__(path, hello=False)
        self.socket.setblocking(False)
        self.chance = chance
        self.sent = {}      # id: (method, region)
        self.regions = []
        self.deaf_until = 0
        self.answered_count = 0
        self.ask('hello', protocol=1, client='soak')

    def ask(self, method, fds=(), region=None, **params):
        number = self.next_id
        if region is not None:
            params['region'] = region
        try:
            self.request(method, fds, **params)
        except BlockingIOError:
            return  # held back: nothing was sent
        self.sent[number] = (method, region)

    def take(self):
        """Reads what is there."""
        if time.monotonic() < self.deaf_until:
            return
        while self.receive(0):
            pass
        expect.holds(not self.without_id, f'an answer without id: {self.without_id}')
        for number, answer in list(self.answers.items()):
            expect.holds(number in self.sent, f'an answer that nobody asked for, or a second one: {answer}')
            method, region = self.sent.pop(number)
            del self.answers[number]
            self.answered_count += 1
            if method == 'region.register' and 'result' in answer:
                self.regions.append(answer['result']['region'])
            if method == 'region.close' and 'result' in answer and region in self.regions:
                self.regions.remove(region)

    def act(self, files):
        """One step, of any kind."""
        chance = self.chance
        region = chance.choice(self.regions) if self.regions else 1
        window = {'offset': chance.randrange(0, FILE_SIZE), 'length': chance.randrange(1, 4 * PAGE)}
        deadline = {'deadline_ms': chance.randrange(1, 200)} if chance.random() < 0.4 else {}
        key = chance.choice(KEYS)
        kind = chance.random()
        if kind < 0.15:
            offset = chance.randrange(0, 8) * PAGE
            self.ask('region.register', [chance.choice(files)], type='memfd', offset=offset,
                     size=chance.randrange(1, FILE_SIZE), access=chance.choice(['rw', 'rw', 'r']),
                     populate=chance.random() < 0.1)
        elif kind < 0.25:
            self.ask('region.close', region=region, force=chance.random() < 0.6)
        elif kind < 0.50:
            self.ask('transfer.set', region=region, key=key, **window, **deadline)
        elif kind < 0.80:
            self.ask('transfer.get', region=region, key=key, **window, **deadline)
        elif kind < 0.90:
            method = chance.choice(['keys.exists', 'keys.info', 'keys.delete'])
            self.ask(method, keys=[chance.choice(KEYS) for _ in range(chance.randrange(1, 20))])
        elif kind < 0.94:
            self.ask('status')
        elif kind < 0.96:
            self.ask('status', [chance.choice(files)] * chance.randrange(1, 20))
        elif kind < 0.98:
            self.deaf_until = time.monotonic() + chance.random()
        else:
            return self.leave(chance.choice(['close', 'half', 'deaf']))
        return True

    def leave(self, how):
        """False: gone. A client that only stops to send is told what became of its requests."""
        if how == 'deaf':
            self.socket.shutdown(socket.SHUT_RD)
            self.ended = True
        elif how == 'half':
            self.socket.shutdown(socket.SHUT_WR)
            self.deaf_until = 0
            deadline = time.monotonic() + 60  # a set that is not answered has drain_ms
            while not self.ended:
                self.receive(0.1)
                expect.holds(time.monotonic() < deadline, 'the daemon did not close the session')
            self.take()
            expect.equal(self.last_packet.get('method'), 'session.closed', 'last packet')
        return False

    def end_all(self):
        """Cancels what is left; True when everything that was sent has its answer."""
        self.deaf_until = 0
        self.take()
        for region in set(self.regions) - {region for method, region in self.sent.values() if method == 'region.close'}:
            self.ask('region.close', region=region, force=True)
        return not self.sent and not self.regions


def close(client):
    client.close()
    return client.answered_count


def state(stage, operator):
    """What must be as before when nobody is there any more."""
    status = operator.call('status')
    with open(f'/proc/{stage.daemon.pid}/maps', encoding='utf-8', errors='replace') as file:
        mappings = sum('/memfd:' in line for line in file)
    return {'sessions': status['daemon']['sessions'], 'regions': status['memory']['regions'],
            'arenas': status['memory']['arenas'], 'pinned': status['memory']['pinned_bytes'],
            'quarantined': status['memory']['quarantined_bytes'], 'open': status['transfers']['open'],
            'queued': status['transfers']['queued'], 'busy': status['nodes'][0]['carriers_busy'],
            'mappings': mappings, 'memfds': stage.daemon.memfd_fds('')}


def use_everything(stage):
    """Every connection and lane of the pool is there, so that descriptors can be counted."""
    with stage.memory(FILE_SIZE) as memory, stage.session() as session:
        region = session.register(memory)

        def all_used():
            for number in [session.start_set(region, n * PAGE, PAGE, 'x') for n in range(16)]:
                session.wait(number)
            return session.call('status')['nodes'][0]['carriers'] == CONNECTIONS

        with stage.valkey.faults(test_delay_before_reply_ms=300):
            wait.until(all_used, 'every connection is there')
    wait.until(lambda: stage.daemon.holds_nothing_of(memory.name), 'the memory is given up')


TCP = 'TCP socket'
SOME_SOCKETS = 100  # of lanes, as the server connects again after errors; of a leak there would be hundreds


def tcp_sockets(daemon):
    """Inodes of the TCP sockets in the daemon's network: those of lanes and of connections to the server."""
    inodes = set()
    for name in ('tcp', 'tcp6'):
        with open(f'/proc/{daemon.pid}/net/{name}', encoding='ascii') as table:
            inodes |= {line.split()[9] for line in table.readlines()[1:]}
    return inodes


def kind_of(link, tcp):
    if link.startswith('socket:') and re.sub('[^0-9]', '', link) in tcp:
        return TCP
    return re.sub('[0-9]+', '', link)


def settled_fds(daemon):
    """Descriptors by kind, when they no longer change."""
    seen = []

    def same():
        tcp = tcp_sockets(daemon)
        seen.append(collections.Counter(kind_of(link, tcp) for link in daemon.fds()))
        return len(seen) > 20 and all(each == seen[-1] for each in seen[-20:])

    wait.until(same, lambda: f'the descriptors settle: {seen[-1]}', pause=0.02)
    return seen[-1]


def transfers_ended(operator):
    return sum(operator.call('status')['transfers']['ended'].values())


def run(stage, operator, chance, files):
    """Returns (requests answered, clients)."""
    clients, processes, answered, born = [], [], 0, 0
    start, next_fault, enough = time.monotonic(), 0, False
    faults = stage.valkey.faults()
    faults.__enter__()
    while time.monotonic() < start + SECONDS or not enough:
        if time.monotonic() > next_fault:
            ended, told = transfers_ended(operator), answered + sum(client.answered_count for client in clients)
            enough = told > ANSWERS and ended > TRANSFERS
            expect.holds(time.monotonic() < start + LIMIT, f'too little happens: {told} answers, {ended} transfers')
            faults.__exit__(None, None, None)
            faults = stage.valkey.faults(**chance.choice(FAULTS))
            faults.__enter__()
            next_fault = time.monotonic() + chance.uniform(0.1, 1)
            processes.append(short_life(stage.daemon.path, chance.random(), files))
        while len(clients) < CLIENTS:
            clients.append(Client(stage.daemon.path, chance))
            born += 1
        for client in list(clients):
            steps = chance.randrange(0, 8)
            client.take()
            expect.holds(not client.ended, f'a session ended by itself: {client.last_packet}')
            if not all(client.act(files) for _ in range(steps)):
                clients.remove(client)
                answered += close(client)
        select.select([client.socket for client in clients], [], [], 0.005)
        expect.holds(stage.daemon.alive(), 'the daemon ended')
    faults.__exit__(None, None, None)
    for client in clients:
        wait.until(client.end_all, lambda: f'all is answered; left: {client.sent}')
        answered += close(client)
    for pid in processes:
        os.waitpid(pid, 0)
    return answered, born


def short_life(path, seed, files):
    """A process that does something and ends, while a child of its own holds its socket for a while longer."""
    pid = os.fork()
    if pid > 0:
        return pid
    try:
        client = Client(path, random.Random(seed))
        for _ in range(40):
            client.take()
            client.act(files)
        if os.fork() == 0:
            time.sleep(2)
    finally:
        os._exit(0)


@tap.slow(int(LIMIT) + 100)
@tap.waits(500)
def test_everything_at_once(stage):
    """Clients that do everything in any order and leave at any moment: one answer each, and nothing is left"""
    seed = int(os.environ.get('GRD_SOAK_SEED', random.randrange(1 << 32)))
    print(f'# GRD_SOAK_SEED={seed}', flush=True)
    use_everything(stage)
    with Session(stage.daemon.admin_path, hello=False) as operator:
        wait.until(lambda: state(stage, operator)['sessions'] == 1, 'nobody is there')
        before = state(stage, operator)
        expect.holds(before['regions'] == before['open'] == before['busy'] == 0, before)
        fds = settled_fds(stage.daemon)
        files = [memory_fd(f'soak-{n}', FILE_SIZE) for n in range(FILES)]
        answered, born = run(stage, operator, random.Random(seed), files)
        for fd in files:
            os.close(fd)
        wait.until(lambda: state(stage, operator) == before,
                   lambda: f'all is as before: {state(stage, operator)}, before {before}')
        print(f'# {born} clients, {answered} answers, {operator.call("status")["transfers"]["ended"]}', flush=True)
    use_everything(stage)
    more = settled_fds(stage.daemon) - fds
    print(f'# TCP sockets more: {more[TCP]}', flush=True)
    if more[TCP] <= SOME_SOCKETS:
        del more[TCP]
    expect.equal(dict(more), {}, 'descriptors that are more')


tap.run(globals(), Stage(daemon_config={'fabric.revoke_grace_ms': 20, 'valkey.connections': CONNECTIONS}))
