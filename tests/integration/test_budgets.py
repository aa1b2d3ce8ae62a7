"""The budgets of registered memory: what is refused and with which numbers, what status tells, and the daemon's ends."""
import json
import os
import resource
import subprocess

from lib import expect, paths, tap
from lib.stage import Stage
from lib.users import NOBODY, as_user

MIB = 1 << 20
ENOMEM, EBUSY = 12, 16
EX_TEMPFAIL, EX_CONFIG = 75, 78


def fake(stage, script, config=None, **arguments):
    """A daemon with a fabric that is played, of a provider that pins."""
    return stage.other_daemon(config={'fabric.provider': 'verbs', **(config or {})},
                              environment={'GLIDE_RDMAD_FABRIC_OBJECT': paths.built('GRD_FAKE_FABRIC'),
                                           'FAKE_FABRIC': script}, **arguments)


def refusal(session, memory, size, **numbers):
    with expect.error('over_budget') as refused:
        session.register(memory, size=size)
    expect.equal({name: refused.raised.data.get(name) for name in numbers}, numbers)
    return refused.raised


def binding_rlimit():
    """RLIMIT_MEMLOCK of a daemon of this user; 0 where it does not bind, because there is none or by CAP_IPC_LOCK."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return 0 if os.getuid() == 0 or limit == resource.RLIM_INFINITY else limit


def test_memlock(stage):
    """memlock: a refusal has its numbers, and status shows use, limit and where it comes from, per user too"""
    daemon = stage.other_daemon(config={'memory.pinned_limit': '3M'})
    with stage.memory(4 * MIB) as memory, stage.memory(4 * MIB) as other, stage.session(daemon) as session:
        region = session.register(memory, size=2 * MIB)
        refusal(session, other, MIB + 1, budget='memlock', used=2 * MIB, limit=3 * MIB, asked=MIB + 4096)
        status = session.call('status')
        expect.equal(status['memory']['memlock'],
                     {'used': 2 * MIB, 'limit': 3 * MIB, 'queues': 0, 'source': 'pinned_limit', 'quarantined': 0,
                      'pins': False, 'rlimit': binding_rlimit()})
        expect.equal(status['user']['pinned_bytes'], 2 * MIB)
        device = status['memory']['devices'][0]
        expect.equal((device['nic'], device['used'], device['limit'], device['registrations']), ('host', 2 * MIB, 0, 1))
        expect.equal(device['registrations_total'], status['fabric']['registrations_total'])
        expect.holds(device['registrations_total'] >= 1, device)
        session.call('region.close', region=region)
        expect.equal(session.call('status')['memory']['memlock']['used'], 0)


def test_limit_of_the_host(stage):
    """Without pinned_limit it is half of the memory of the host or of the control group, and the log says so"""
    with stage.session() as session:
        memlock = session.call('status')['memory']['memlock']
    expect.holds(memlock['source'] in ('MemTotal', 'memory.max'), memlock)
    expect.holds(f'{memlock["limit"]} bytes (half of {memlock["source"]})' in stage.daemon.process.log(), 'the log')


def test_device(stage):
    """device_limit: the refusal has its numbers and the NIC's name"""
    daemon = stage.other_daemon(config={'memory.device_limit': '2M'})
    with stage.memory(4 * MIB) as memory, stage.session(daemon) as session:
        session.register(memory, size=MIB)
        error = refusal(session, memory, 2 * MIB, budget='device', used=MIB, limit=2 * MIB, asked=2 * MIB)
        expect.holds('NIC host' in error.message, error)
        expect.equal(session.call('status')['memory']['devices'][0]['limit'], 2 * MIB)


def test_registrations(stage):
    """The number of registrations that a device states is a budget"""
    daemon = fake(stage, 'registrations=3', {'fabric.mr_max_bytes': '1M'})
    with stage.memory(4 * MIB) as memory, stage.memory(MIB) as last, stage.session(daemon) as session:
        session.register(memory, size=2 * MIB)
        error = refusal(session, memory, 4 * MIB, budget='registrations', used=2, limit=3, asked=4)
        expect.holds('NIC fake0' in error.message, error)
        session.register(last)
        device = session.call('status')['memory']['devices'][0]
        expect.equal((device['registrations'], device['registrations_limit'], device['registrations_total']), (3, 3, 3))


def test_two_nics(stage):
    """Where one NIC is full, memory goes to the next; status shows each, and the user's part"""
    daemon = fake(stage, 'nics=2', {'memory.device_limit': '3M'})
    with stage.memory(2 * MIB) as one, stage.memory(2 * MIB) as two, stage.memory(MIB) as small, \
            stage.session(daemon) as session:
        session.register(one)
        session.register(two)
        with as_user(lambda: stage.session(daemon), NOBODY) as other:
            other.register(small)
            status = other.call('status')
            expect.equal(status['user']['devices'], [{'nic': 'fake0', 'used': MIB}])
        expect.equal([(device['nic'], device['used']) for device in status['memory']['devices']],
                     [('fake0', 3 * MIB), ('fake1', 2 * MIB)])
        expect.equal(status['memory']['memlock']['used'], 5 * MIB)
        expect.equal(session.call('status')['user']['devices'],
                     [{'nic': 'fake0', 'used': 2 * MIB}, {'nic': 'fake1', 'used': 2 * MIB}])


def test_provider_refuses(stage):
    """The provider has no room although the budgets do: both budgets are told, and the one that was most likely hit"""
    daemon = fake(stage, f'mr_open={ENOMEM}', {'memory.pinned_limit': '4M', 'memory.device_limit': '3M'})
    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        error = refusal(session, memory, MIB, used=0, asked=MIB, memlock_used=0, memlock_limit=4 * MIB, device_used=0,
                        device_limit=3 * MIB)
        # Root has CAP_IPC_LOCK: RLIMIT_MEMLOCK does not count.
        expect.equal(error.data['budget'], 'device' if os.getuid() == 0 else error.data['budget'])
        expect.equal(session.call('status')['memory']['memlock']['used'], 0)


# --- RLIMIT_MEMLOCK


def limited(stage, config=None, **arguments):
    """A daemon without privileges that may pin 8 MiB, 2 of which are left to queues."""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become an unprivileged user')
    return fake(stage, '', config, uid=NOBODY, limits=[(resource.RLIMIT_MEMLOCK, 8 * MIB)], **arguments)


def test_rlimit_refuses_the_start(stage):
    """pinned_limit above RLIMIT_MEMLOCK: status 78, with both numbers and what to do"""
    daemon = limited(stage, {'memory.pinned_limit': '7M'}, start=False)
    daemon.begin()
    expect.equal(daemon.process.wait(), EX_CONFIG, 'exit status')
    log = daemon.process.log()
    for word in (str(7 * MIB), str(8 * MIB), str(6 * MIB), 'LimitMEMLOCK=', 'verbs'):
        expect.holds(word in log, f'{word} is missing in {log}')


def test_rlimit_refuses_without_a_device(stage):
    """The same with a provider that has no device here: the limit is the configuration's matter"""
    daemon = limited(stage, {'memory.pinned_limit': '7M'}, start=False)
    del daemon.environment['GLIDE_RDMAD_FABRIC_OBJECT']
    daemon.begin()
    expect.equal(daemon.process.wait(), EX_CONFIG, 'exit status')


def test_rlimit_is_the_limit(stage):
    """Without pinned_limit the lower value applies; status and log name RLIMIT_MEMLOCK"""
    daemon = limited(stage)
    with stage.memory(7 * MIB) as memory, stage.session(daemon) as session:
        refusal(session, memory, 7 * MIB, budget='memlock', used=0, limit=6 * MIB, asked=7 * MIB)
        session.register(memory, size=6 * MIB)
        expect.equal(session.call('status')['memory']['memlock'],
                     {'used': 6 * MIB, 'limit': 6 * MIB, 'queues': 0, 'source': 'RLIMIT_MEMLOCK', 'quarantined': 0,
                      'pins': True, 'rlimit': 8 * MIB})
    expect.holds('(RLIMIT_MEMLOCK)' in daemon.process.log(), 'the log')


def test_rlimit_does_not_bind_on_tcp(stage):
    """tcp pins nothing: pinned_limit may be above RLIMIT_MEMLOCK"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become an unprivileged user')
    daemon = stage.other_daemon(config={'memory.pinned_limit': '32M'}, uid=NOBODY,
                                limits=[(resource.RLIMIT_MEMLOCK, MIB)])
    with stage.memory(16 * MIB) as memory, stage.session(daemon) as session:
        session.set(session.register(memory), 0, 16 * MIB, 'large')


# --- quarantine


def test_restart(stage):
    """Above quarantine_restart_bytes the daemon ends with status 75; below it shows what is quarantined"""
    daemon = fake(stage, f'mr_close={EBUSY}', {'memory.quarantine_restart_bytes': '1M', 'daemon.drain_ms': 100})
    with stage.memory(MIB) as one, stage.memory(MIB) as two, stage.session(daemon) as session:
        first, second = session.register(one), session.register(two)
        expect.equal(session.call('region.close', region=first), {'memory_released': False})
        memory = session.call('status')['memory']
        expect.equal((memory['memlock']['quarantined'], memory['memlock']['used'], memory['quarantined_arenas'],
                      memory['quarantine_restart_bytes']), (MIB, 2 * MIB, 1, MIB))
        number = session.request('region.close', region=second)
        expect.equal(session.wait(number), {'memory_released': False})
        expect.equal(daemon.process.wait(), EX_TEMPFAIL, 'exit status')
        expect.holds('quarantine_restart_bytes = 1048576' in daemon.process.log(), daemon.process.log())
    stage.forget(daemon)


def test_no_restart_by_default(stage):
    """By default what is quarantined stays so, and the daemon goes on"""
    daemon = fake(stage, f'mr_close={EBUSY}', {'memory.pinned_limit': '2M'})
    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        for _ in range(2):
            expect.equal(session.call('region.close', region=session.register(memory)), {'memory_released': False})
        refusal(session, memory, MIB, budget='memlock', used=2 * MIB, limit=2 * MIB, asked=MIB)
    expect.equal(daemon.stop(), EX_TEMPFAIL)
    stage.forget(daemon)


# --- glide-rdmactl


def test_ctl(stage):
    """glide-rdmactl status shows both budgets, for people and as JSON"""
    daemon = fake(stage, 'nics=2 registrations=9', {'memory.pinned_limit': '4M', 'memory.device_limit': '3M',
                                                    'memory.quarantine_restart_bytes': '1M'})
    environment = paths.environment(GLIDE_RDMAD_SOCKET=daemon.path)

    def ctl(*words):
        return subprocess.run([paths.built('GRD_CTL'), *words], stdout=subprocess.PIPE, check=True, timeout=100,
                              env=environment).stdout.decode()

    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        session.register(memory)
        expect.equal(json.loads(ctl('status', '--json'))['memory']['memlock'],
                     {'used': MIB, 'limit': 4 * MIB, 'queues': 0, 'source': 'pinned_limit', 'quarantined': 0,
                      'pins': True, 'rlimit': binding_rlimit()})
        text = ctl('status')
        for words in ('memlock', 'of 4.0 MiB, limit from pinned_limit, quarantined 0', 'restart above 1.0 MiB',
                      'fake0: 1.0 MiB of 3.0 MiB; 1 of 9 registrations, 1 made so far',
                      'fake1: 0 B of 3.0 MiB; 0 of 9 registrations, 0 made so far'):
            expect.holds(words in text, f'{words!r} is missing in\n{text}')


tap.run(globals(), Stage())
