"""reload: what is taken over at once and for living sessions, what needs a restart, and broken files."""
import os
import signal
import subprocess

from lib import expect, paths, tap, wait
from lib.daemon import ini
from lib.reload import reload, write
from lib.session import Session
from lib.stage import Stage
from lib.users import as_user

MIB = 1 << 20
USER = 20001


def ctl(daemon, *words):
    done = subprocess.run([paths.built('GRD_CTL'), *words, '--admin-socket', daemon.admin_path], check=False, text=True,
                          capture_output=True)
    return done.returncode, done.stdout, done.stderr


def test_nothing(stage):
    """An unchanged file changes nothing"""
    expect.equal(reload(stage.daemon), {'reloaded': True, 'changed': [], 'needs_restart': []})


def test_quotas(stage):
    """Quotas hold for living sessions at once, in both directions; what is registered stays"""
    daemon = stage.other_daemon()
    with stage.memory(MIB) as one, stage.memory(MIB) as two, as_user(lambda: Session(daemon.path), USER) as client:
        client.register(one)
        answer = reload(daemon, {f'policy uid {USER}.pinned_bytes': '1M', f'policy uid {USER}.sessions': 1})
        expect.equal((answer['changed'], answer['needs_restart']), (['[policy]'], []))
        with expect.error('over_quota') as error:
            client.register(two)
        expect.equal(error.raised.data['limit'], MIB)
        expect.equal(client.call('status')['user']['quotas']['pinned_bytes'], MIB)
        with as_user(lambda: Session(daemon.path, hello=False), USER) as second:
            expect.equal(second.wait_notification('session.closed')['code'], -8)
        reload(daemon, {f'policy uid {USER}.pinned_bytes': '2M'})
        client.register(two)


def test_in_flight(stage):
    """A quota of transfers in flight that is raised lets those that wait go at once"""
    daemon = stage.other_daemon(config={'policy.in_flight': 1, 'valkey.warm': 'yes'})
    with stage.memory(MIB) as memory, stage.session(daemon) as client, \
            Session(daemon.admin_path, hello=False) as admin:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        wait.until(lambda: admin.call('status')['nodes'][0]['carriers'] == 8, 'connections for all')
        stage.valkey.process.freeze()
        numbers = [client.start_get(region, n * 10, 10, 'key') for n in range(4)]
        wait.until(lambda: admin.call('status')['transfers']['queued'] == 3, 'three wait')
        reload(daemon, {'policy.in_flight': 3})
        wait.until(lambda: admin.call('status')['transfers']['queued'] == 1, 'one waits')
        stage.valkey.process.thaw()
        for number in numbers:
            client.wait(number)


def test_limits(stage):
    """Limits, budget and the level of the log are those of the new file"""
    daemon = stage.other_daemon()
    answer = reload(daemon, {'limits.region_bytes': '1M', 'memory.pinned_limit': '8M', 'memory.device_limit': '4M',
                             'daemon.log_level': 'warn'})
    expect.equal(answer['changed'], ['[daemon] log_level', '[memory] pinned_limit', '[memory] device_limit',
                                     '[limits] region_bytes'])
    with stage.memory(2 * MIB) as memory, stage.session(daemon) as client, \
            Session(daemon.admin_path, hello=False) as admin:
        with expect.error('over_limit'):
            client.register(memory)
        budget = admin.call('status')['memory']
        expect.equal((budget['memlock']['limit'], budget['memlock']['source'], budget['devices'][0]['limit']),
                     (8 * MIB, 'pinned_limit', 4 * MIB))
        expect.equal(admin.call('log.level'), {'level': 'warn'})


def test_times(stage):
    """The grace of a revocation holds for the transfer that runs; the time of a drain, and of hello, for the next one"""
    daemon = stage.other_daemon(config={'fabric.revoke_grace_ms': 60000})
    with stage.memory(MIB) as memory, stage.session(daemon) as client, \
            Session(daemon.admin_path, hello=False) as admin:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        with stage.valkey.faults(test_never_answer='yes'):
            number = client.start_get(region, 0, 10, 'key')
            wait.until(lambda: [entry['state'] for entry in admin.call('transfers')['transfers']] == ['sent'],
                       'it was sent')
            answer = reload(daemon, {'fabric.revoke_grace_ms': 1, 'daemon.drain_ms': 1234, 'limits.hello_ms': 1})
            expect.equal(answer['changed'], ['[daemon] drain_ms', '[fabric] revoke_grace_ms', '[limits] hello_ms'])
            client.call('transfer.cancel', id=number)
            expect.equal(client.outcome(number), 'cancelled')
        with Session(daemon.path, hello=False) as silent:
            expect.equal(silent.wait_notification('session.closed')['code'], -6)
        expect.equal(admin.call('drain')['drain_ms'], 1234)
        expect.equal(client.wait_notification('daemon.draining'), {'deadline_ms': 1234})


def test_sessions(stage):
    """Fewer sessions than there are: those stay, the next one is refused; pages are not allocated any more"""
    daemon = stage.other_daemon()
    with stage.session(daemon) as one, stage.session(daemon) as two, stage.memory(MIB) as memory:
        reload(daemon, {'limits.sessions_per_user': 1, 'limits.populate': 'no'})
        with Session(daemon.path, hello=False) as third:
            third.wait_notification('session.closed')
        for session in (one, two):
            session.call('status')
        with expect.error('denied', 'over_limit', 'not_populated'):
            two.register(memory, populate=True)


def test_log_level(stage):
    """log.level holds until the next reload; a word that is no level is refused"""
    daemon = stage.other_daemon(config={'daemon.log_level': 'notice'})
    expect.equal(ctl(daemon, 'log-level'), (0, 'notice\n', ''))
    expect.equal(ctl(daemon, 'log-level', 'debug'), (0, 'debug\n', ''))
    with stage.session(daemon):
        wait.until(lambda: 'level=debug session' in daemon.process.log(), 'a line of that level')
    status, _, words = ctl(daemon, 'log-level', 'loud')
    expect.equal(status, 64)
    expect.holds('"notice"' in words, words)
    reload(daemon)
    expect.equal(ctl(daemon, 'log-level'), (0, 'notice\n', ''))


def test_needs_restart(stage):
    """Keys that need a restart are named in answer and log, and keep their value; the others are taken over"""
    daemon = stage.other_daemon()
    answer = reload(daemon, {'fabric.provider': 'verbs', 'socket more.path': '/nowhere', 'limits.regions': 1,
                             'socket main.mode': '0600'})
    expect.equal(answer, {'reloaded': True, 'changed': ['[limits] regions'],
                          'needs_restart': ['[fabric] provider', '[socket main] mode', '[socket more]']})
    for name in answer['needs_restart']:
        expect.holds(f'reload: {name} has changed; it needs a restart' in daemon.process.log(), daemon.process.log())
    status, words, _ = ctl(daemon, 'reload')
    expect.equal((status, words), (0, 'needs a restart: [fabric] provider, [socket main] mode, [socket more]\n'))
    with stage.session(daemon) as client:
        expect.equal(client.hello['fabric']['provider'], 'tcp')


def test_broken_files(stage):
    """A broken file changes nothing; file, line and reason are in answer, log and status"""
    daemon = stage.other_daemon(config={'limits.regions': 5})
    good = ini(daemon.sections)
    for text, reason in ((good.replace('regions = 5', 'regions = 6\nregoins = 7'), 'no such key: "regoins"'),
                         (good.replace('regions = 5', 'regions = many'), '"many" is no whole number'),
                         (good + '[policy socket other]\nqueue = 1\n', 'other'),
                         (good + '\n???\n', 'neither [section]')):
        answer = reload(daemon, text=text)
        expect.equal((answer['reloaded'], answer['changed']), (False, []))
        expect.holds(reason in answer['why'] and f'{daemon.config_path}:' in answer['why'], answer)
        expect.holds(answer['why'] in daemon.process.log(), daemon.process.log())
    status, _, words = ctl(daemon, 'reload')
    expect.equal(status, 78)
    expect.holds('not reloaded' in words and daemon.config_path in words, words)
    wait.until(lambda: daemon.notified('READY=1') and any('STATUS=not reloaded' in m for m in daemon.messages),
               lambda: daemon.messages)
    os.unlink(daemon.config_path)
    with stage.session(daemon) as client, Session(daemon.admin_path, hello=False) as admin:
        expect.holds('No such file' in admin.call('reload')['why'], 'a missing file')
        expect.equal(client.hello['limits']['regions'], 5)


def test_signal(stage):
    """SIGHUP: RELOADING with the time of the clock, then READY"""
    daemon = stage.other_daemon()
    daemon._listen()  # pylint: disable=protected-access
    write(daemon, {'limits.regions': 3})
    daemon.process.signal(signal.SIGHUP)
    wait.until(lambda: daemon.notified('READY=1'), 'READY=1')
    told = [message for message in daemon.messages if not message.startswith('STATUS=')]  # of a node that is up now
    first = told[0].splitlines()
    expect.equal(first[0], 'RELOADING=1')
    expect.holds(first[1].startswith('MONOTONIC_USEC=') and int(first[1].split('=')[1]) > 0, first)
    with stage.session(daemon) as client:
        expect.equal(client.hello['limits']['regions'], 3)


def writer(path):
    """The writing end of a FIFO once somebody reads there."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_signal_during_the_start(stage):
    """SIGHUP while the daemon starts does not end it: it reloads as soon as it is ready"""
    daemon = stage.other_daemon(start=False)
    path = daemon.config_path
    os.mkfifo(path)
    daemon.begin()
    held = []
    wait.until(lambda: held.append(writer(path)) or held[-1] is not None, 'it reads its configuration')
    os.unlink(path)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(ini({**daemon.sections, 'limits': {'regions': 3}}))
    daemon.process.signal(signal.SIGHUP)
    os.write(held[-1], ini(daemon.sections).encode())
    os.close(held[-1])
    wait.until(lambda: 'reloaded:' in daemon.process.log() or not daemon.alive(), 'it reloads')
    expect.holds(daemon.alive(), 'the daemon has ended')
    with stage.session(daemon) as client:
        expect.equal(client.hello['limits']['regions'], 3)


def test_at_once(stage):
    """Many reloads at the same time are each answered, by a run that began after they were asked for"""
    daemon = stage.other_daemon()
    with Session(daemon.admin_path, hello=False) as admin:
        numbers = [admin.request('reload') for _ in range(50)]
        for number in numbers:
            expect.equal(admin.wait(number)['reloaded'], True)
        runs = daemon.process.log().count('level=notice reloaded:')
        expect.holds(1 <= runs <= 50, runs)
    with Session(daemon.admin_path, hello=False) as admin:
        admin.request('reload')  # and gone
    with stage.session(daemon) as client:
        client.call('status')


def test_credentials(stage):
    """The password file is read again, and connections log in with it, those that are idle too"""
    folder = stage.new_folder()
    path = os.path.join(folder, 'password')
    server = stage.other_valkey(options={'requirepass': 'first'})
    with open(path, 'w', encoding='utf-8') as file:
        file.write('first\n')
    daemon = stage.other_daemon(server, config={'valkey.password_file': path})
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        before = logins(server)
        with open(path, 'w', encoding='utf-8') as file:
            file.write('first\n# rotated\n')
        reload(daemon)
        wait.until(lambda: logins(server) >= before + 2, 'control and data connection have logged in again')
        client.get(region, 0, 10, 'key')
        expect.equal(client.call('status')['nodes'][0]['reconnects'], 0)


def logins(server):
    with server.connect() as resp:
        resp.call('AUTH', 'first')
        stats = resp.call('INFO', 'commandstats').decode()
    line = next(line for line in stats.splitlines() if line.startswith('cmdstat_auth:'))
    own = getattr(logins, 'own', 0) + 1
    logins.own = own
    return int(line.split('calls=')[1].split(',')[0]) - own


tap.run(globals(), Stage())
