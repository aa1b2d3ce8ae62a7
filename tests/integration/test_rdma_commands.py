"""Commands over RDMA on a host that has none: the server is down with the reason, nothing goes over TCP unasked, and with
rdma_fallback = tcp everything does, and says so. (That RDMA itself works is tested in tests/rxe.)"""
import os
import subprocess

from lib import expect, paths, tap, wait
from lib.doctor import doctor, says, verdicts
from lib.memory import MIB, write_noise
from lib.metrics import Metrics, text_of
from lib.reload import reload
from lib.session import Session
from lib.stage import Stage

OK, FAILED = 0, 1
WITHOUT_LIBRARY = {'GLIDE_RDMAD_VALKEY_RDMA_OBJECT': '/nonexistent/glide-rdmad-valkey-rdma.so'}


def node(session):
    return session.call('status')['nodes'][0]


def server_line(daemon):
    """What glide-rdmactl status tells people of the server."""
    done = subprocess.run([paths.built('GRD_CTL'), 'status', '--socket', daemon.path], check=True, text=True,
                          capture_output=True)
    return next(line for line in done.stdout.splitlines() if line.startswith('server '))


def rdma_address(stage):
    return f'rdma://127.0.0.1:{stage.valkey.port}'


def over_rdma(stage, fallback=False, **arguments):
    """A daemon whose server is to be reached over RDMA, and listens on the same port over TCP."""
    config = {'valkey.transport': 'rdma', **({'valkey.rdma_fallback': 'tcp'} if fallback else {}),
              **arguments.pop('config', {})}
    return stage.other_daemon(config=config, **arguments)


def is_down(session, *words):
    wait.until(lambda: node(session)['state'] == 'down', 'the node is down')
    told = node(session)
    for word in words:
        expect.holds(word in told['why'], told)
    expect.equal((told['transport'], told['transport_why']), ('rdma', ''))
    error = session.call('keys.exists', keys=['a'])['keys'][0]['error']
    expect.equal(error['name'], 'server_down')
    expect.holds(words[0] in error['message'], error)


def test_no_device(stage):
    """rdma:// without a device that leads there: the daemon starts, and says what is missing"""
    daemon = stage.other_daemon(address=rdma_address(stage))
    with stage.session(daemon) as session:
        is_down(session, rdma_address(stage), 'RDMA')
        expect.equal((node(session)['address'], node(session)['rdma_address']), (rdma_address(stage),) * 2)
        expect.equal(session.call('status')['memory']['memlock']['queues'], 0, 'charged for nothing')
    checks = doctor(daemon, FAILED, '--quick')
    says(checks['valkey_rdma'], 'failed', rdma_address(stage), 'RDMA')  # is down, or connecting once more
    expect.equal(verdicts(checks, 'configuration', 'fabric', 'region'), ['ok'] * 3)


def test_no_library(stage):
    """Without the object that calls libfabric: the same, with the file's name"""
    daemon = over_rdma(stage, environment=WITHOUT_LIBRARY)
    with stage.session(daemon) as session:
        is_down(session, 'RDMA', '/nonexistent/glide-rdmad-valkey-rdma.so')
        expect.equal((node(session)['address'], node(session)['rdma_address']),
                     (f'127.0.0.1:{stage.valkey.port}', rdma_address(stage)))


def test_only_when_asked(stage):
    """A daemon whose servers are reached over TCP does not load it"""
    with open(f'/proc/{stage.daemon.process.pid}/maps', encoding='ascii') as maps:
        expect.holds('glide-rdmad-valkey-rdma' not in maps.read(), 'the object is loaded')


def test_elsewhere(stage):
    """rdma_port and rdma_nodes: where RDMA is tried for a server that is named by its TCP address"""
    name = f'127.0.0.1:{stage.valkey.port}'
    for keys, at in (({'rdma_port': 7100}, 'rdma://127.0.0.1:7100'),
                     ({'rdma_port': 7100, 'rdma_nodes': '127.0.0.1=127.0.0.9'}, 'rdma://127.0.0.9:7100'),
                     ({'rdma_nodes': f'{name}=127.0.0.9:7200'}, 'rdma://127.0.0.9:7200')):
        daemon = over_rdma(stage, config={f'valkey.{key}': value for key, value in keys.items()})
        with stage.session(daemon) as session:
            is_down(session, at)
            expect.equal((node(session)['address'], node(session)['rdma_address']), (name, at))
        # it is tried again and again, and is connecting in between
        wait.until(lambda daemon=daemon, at=at: f'{name} is down, transport rdma ({at}), ' in server_line(daemon),
                   lambda daemon=daemon: server_line(daemon))


def round_trip(stage, session):
    with stage.memory(4 * MIB) as memory:
        region = session.register(memory)
        write_noise(memory, 0, MIB, seed=1)
        session.set(region, 0, MIB, 'over tcp')
        expect.equal(session.get(region, 2 * MIB, MIB, 'over tcp')['length'], MIB)
        expect.same_bytes(memory[2 * MIB:3 * MIB], memory[0:MIB], 'what came back')
        session.call('region.close', region=region)


def test_fallback(stage):
    """rdma_fallback = tcp, without device and without library: keys and transfers go over TCP; status, log and doctor
    say so, and why"""
    for environment, why in ({}, 'RDMA'), (WITHOUT_LIBRARY, '/nonexistent'):
        daemon = over_rdma(stage, fallback=True, environment=environment)
        with stage.session(daemon) as session:
            wait.until(lambda: node(session)['state'] == 'up', 'the node is up')
            told = node(session)
            expect.equal((told['transport'], told['path'], told['rdma_auth_in_clear']), ('tcp', 'rdma', False))
            expect.holds(why in told['transport_why'], told)
            round_trip(stage, session)
        expect.equal(Metrics(text_of(daemon)).total('node_rdma_fallback'), 1)
        lines = [line for line in daemon.process.log().splitlines() if 'connected over TCP' in line]
        expect.equal(len(lines), 1, 'lines of the log about the fallback')
        expect.holds('is up, transport tcp instead of RDMA: ' in server_line(daemon), server_line(daemon))
        says(doctor(daemon, OK, '--quick')['valkey_rdma'], 'warning', 'over TCP instead', why)


def test_fallback_by_reload(stage):
    """The fallback can be switched on by a reload; that RDMA is not wanted any more needs a restart"""
    daemon = over_rdma(stage)
    with stage.session(daemon) as session:
        is_down(session, 'RDMA')
        answer = reload(daemon, {'valkey.rdma_fallback': 'tcp'})
        expect.equal((answer['changed'], answer['needs_restart']), (['[valkey] rdma_fallback'], []))
        wait.until(lambda: node(session)['state'] == 'up', 'the node is up')
        expect.equal(node(session)['transport'], 'tcp')
        answer = reload(daemon, {'valkey.transport': None, 'valkey.rdma_fallback': None})
        expect.equal(answer['needs_restart'], ['[valkey] transport'])


def test_password(stage):
    """A password needs rdma_auth_in_clear: at the start, and in a reload; with it, status and doctor warn"""
    path = os.path.join(stage.new_folder(), 'password')
    with open(path, 'w', encoding='ascii') as file:
        file.write('secret')
    daemon = over_rdma(stage)
    answer = reload(daemon, {'valkey.password_file': path})
    expect.equal(answer['reloaded'], False)
    expect.holds('rdma_auth_in_clear = yes' in answer['why'], answer)
    answer = reload(daemon, {'valkey.rdma_auth_in_clear': 'yes'})
    expect.equal(sorted(answer['changed']), ['[valkey] password_file', '[valkey] rdma_auth_in_clear'])
    with Session(daemon.path) as session:
        expect.equal(node(session)['rdma_auth_in_clear'], True)


tap.run(globals(), Stage())
