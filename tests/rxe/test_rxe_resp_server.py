"""What a server does to connections over RDMA: each is told with its reason, and the daemon goes on."""
import signal

from lib import expect, late, tap, wait
from lib.late import ORIGINAL, VALUE
from lib.memory import MIB

import rxe
from rdma_server import RespOverRdma

SIZE = 48 * MIB
PASSWORD = 'over rdma'
SECONDS = 120
# Turns of a loop that may wait: connections are made again and again, each allocates on threads of its own, and the one
# processor may be taken from a thread that holds a lock of malloc.
WAITS = 12


def node(session):
    return session.call('status')['nodes'][0]


def wait_down(session, words):
    """Until the reason why the node is down holds `words`."""
    wait.until(lambda: node(session)['state'] == 'down' and words in node(session)['why'],
               lambda: f'down with "{words}": {node(session)}', SECONDS, pause=0.1)


def wait_answered(session, key):
    """Until the daemon has its connection again."""
    wait.until(lambda: 'exists' in session.keys('keys.exists', key)[0], 'keys.exists is answered', SECONDS, pause=0.1)


@tap.waits(WAITS)
def test_clients_killed(stage):
    """CLIENT KILL: the connections are made again"""
    with stage.memory(4096, fill=7) as memory, stage.session() as session:
        region = session.register(memory)
        session.set(region, 0, 4096, 'value')
        before = node(session)['reconnects']
        stage.valkey.call('CLIENT', 'KILL', 'TYPE', 'normal')
        wait.until(lambda: node(session)['reconnects'] > before, 'the daemon noticed', SECONDS, pause=0.1)
        wait_answered(session, 'value')
        memory.fill(0)
        expect.equal(session.get(region, 0, 4096, 'value')['length'], 4096)
        expect.holds(memory.holds(7), 'the value came back with other bytes')


@tap.waits(WAITS)
def test_restart(stage):
    """A server that is restarted: down with the reason, then up again"""
    server = stage.other_valkey(module_options=stage.module_options)
    with stage.session(stage.other_daemon(server)) as session:
        wait_answered(session, 'value')
        server.stop()
        wait_down(session, 'nobody listens')
        server.start()
        wait_answered(session, 'value')
        expect.equal(node(session)['state'], 'up')


@tap.waits(WAITS)
def test_closed_port(stage):
    """A port on which nobody listens: the error says where to look"""
    daemon = stage.other_daemon(address=f'rdma://{rxe.SERVER}:1')
    with stage.session(daemon) as session:
        wait_down(session, 'nobody listens')
        with expect.error('server_down'):
            session.exists('value')


@tap.waits(WAITS)
def test_protected_mode(stage):
    """A server in protected mode closes without a word: the reasons that it can have are told"""
    server = stage.other_valkey(options={'protected-mode': 'yes'})
    with stage.session(stage.other_daemon(server)) as session:
        wait_down(session, 'protected mode')


@tap.waits(WAITS)
def test_maxclients(stage):
    """So does one that has as many clients as it may"""
    server = stage.other_valkey(module=False)
    with server.connect() as resp:
        resp.call('CONFIG', 'SET', 'maxclients', '1')
        with stage.session(stage.other_daemon(server)) as session:
            wait_down(session, 'maxclients')
            resp.call('CONFIG', 'SET', 'maxclients', '100')
            wait_answered(session, 'value')


def password_file(stage, text):
    path = f'{stage.new_folder()}/password'
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text + '\n')
    return path


@tap.waits(WAITS)
def test_password(stage):
    """A password, which is sent only where the configuration allows it; a wrong one is told"""
    server = stage.other_valkey(options={'requirepass': PASSWORD}, module_options=stage.module_options)
    server.password = PASSWORD
    config = {'valkey.password_file': password_file(stage, PASSWORD), 'valkey.rdma_auth_in_clear': 'yes'}
    with stage.memory(4096, fill=7) as memory, stage.session(stage.other_daemon(server, config=config)) as session:
        session.set(session.register(memory), 0, 4096, 'value')
        expect.equal(server.value('value'), b'\7' * 4096)
    config['valkey.password_file'] = password_file(stage, 'another')
    with stage.session(stage.other_daemon(server, config=config)) as session:
        wait_down(session, 'WRONGPASS')


@tap.waits(WAITS)
def test_killed_in_the_middle(stage):
    """The server is killed in mid-bytes: the transfer ends with an error, nothing lands later, and all goes on after"""
    stage.valkey.store('value', bytes([VALUE]) * SIZE)

    def once(_):
        with stage.memory(SIZE, fill=ORIGINAL) as memory, stage.session() as session:
            number = session.start_get(session.register(memory), 0, SIZE, 'value')
            late.wait_for_bytes(memory, 60)
            stage.valkey.process.signal(signal.SIGKILL)
            outcome = session.outcome(number, SECONDS)
            stage.valkey.restart()
            stage.valkey.store('value', bytes([VALUE]) * SIZE)
            if outcome == 'ok':
                raise late.NotInTheMiddle
            late.watch(memory)
            wait_answered(session, 'value')
            other = session.register(memory)
            expect.equal(session.wait(session.start_get(other, 0, SIZE, 'value'), SECONDS)['length'], SIZE)
            expect.holds(memory.holds(VALUE), 'the value came back with other bytes')

    late.attempts(stage, once)


rxe.run(globals(), RespOverRdma(module_options={'chunk-size': SIZE}))
