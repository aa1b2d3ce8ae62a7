"""glide-rdmactl doctor on hosts that this one is not: NICs that pin memory, limits that bind, signals."""
import os
import resource
import signal

from lib import expect, paths, tap, wait
from lib.doctor import doctor, says, start, verdicts
from lib.stage import Stage
from lib.users import NOBODY

OK, FAILED = 0, 1
MIB = 1 << 20


def fake(stage, script, config=None, **arguments):
    """A daemon with a fabric that is played, of a provider that pins. It registers, and carries nothing."""
    return stage.other_daemon(config={'fabric.provider': 'verbs', **(config or {})},
                              environment={'GLIDE_RDMAD_FABRIC_OBJECT': paths.built('GRD_FAKE_FABRIC'),
                                           'FAKE_FABRIC': script}, **arguments)


def test_pins(stage):
    """A provider that pins, and no RDMA device: the budget is good, the devices are missing"""
    if os.path.isdir('/sys/class/infiniband') and os.listdir('/sys/class/infiniband'):
        raise tap.Skip('this host has an RDMA device')
    checks = doctor(fake(stage, '', {'memory.pinned_limit': '64M'}), FAILED, '--quick')
    says(checks['memlock'], 'ok' if os.getuid() == 0 else checks['memlock']['verdict'], '64.0 MiB (pinned_limit)')
    says(checks['devices'], 'failed', 'no RDMA device for provider verbs')
    expect.equal(verdicts(checks, 'fabric', 'region'), ['ok', 'ok'])


def test_memlock_binds(stage):
    """RLIMIT_MEMLOCK of the daemon is less than the host's memory: a warning with both numbers"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become an unprivileged user')
    daemon = fake(stage, '', uid=NOBODY, limits=[(resource.RLIMIT_MEMLOCK, 8 * MIB)])
    checks = doctor(daemon, FAILED, '--quick')
    says(checks['memlock'], 'warning', 'no more than 6.0 MiB', 'RLIMIT_MEMLOCK of the daemon is 8.0 MiB')
    expect.holds('LimitMEMLOCK' in checks['memlock']['advice'], checks['memlock'])


def test_device_nearly_full(stage):
    """Registrations of each NIC, with its limits; a warning where one is nearly full"""
    daemon = fake(stage, 'nics=2 registrations=9', {'memory.device_limit': '4M'})
    says(doctor(daemon, FAILED, '--quick')['device_limits'], 'ok', 'fake0: 0 B registered, limit 4.0 MiB',
         'fake1: 0 B', '0 registrations, of 9')
    with stage.memory(4 * MIB) as memory, stage.session(daemon) as session:
        session.register(memory)
        checks = doctor(daemon, FAILED, '--quick')
    says(checks['device_limits'], 'warning', 'fake0: 4.0 MiB registered')
    says(checks['region'], 'ok')  # there is another NIC


def test_quarantine(stage):
    """Memory that a device did not give back is told"""
    daemon = fake(stage, 'mr_close=16')
    with stage.memory(MIB) as memory, stage.session(daemon) as session:
        session.call('region.close', region=session.register(memory))
    says(doctor(daemon, FAILED, '--quick')['device_limits'], 'warning', f'{MIB} bytes are quarantined')
    expect.equal(daemon.stop(), 75)
    stage.forget(daemon)


def test_over_budget(stage):
    """A budget that leaves no room for the region"""
    checks = doctor(stage.other_daemon(config={'memory.pinned_limit': '1M'}), FAILED)
    says(checks['region'], 'failed', 'over_budget')
    expect.holds('pinned_limit' in checks['region']['advice'], checks['region'])


def test_interrupted(stage):
    """A signal in the middle: no key is left, and the caller sees the signal"""
    with stage.valkey.faults(chunk_size=64 * 1024, test_delay_between_chunks_ms=50):
        with start(stage.daemon, '--revocation-bytes', '4M') as process:
            wait.until(lambda: stage.valkey.call('KEYS', 'glide-rdmactl:doctor:*'), 'its key is there')
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            expect.equal(process.wait(60), -signal.SIGINT)
    expect.equal(stage.valkey.call('KEYS', '*'), [])


def test_time_to_live(stage):
    """Its key would end by itself, were the doctor killed"""
    with stage.valkey.faults(chunk_size=64 * 1024, test_delay_between_chunks_ms=50):
        with start(stage.daemon, '--revocation-bytes', '4M') as process:
            keys = []
            wait.until(lambda: keys.extend(stage.valkey.call('KEYS', 'glide-rdmactl:doctor:*')) or keys, 'its key')
            process.kill()
            process.wait(60)
    # What was stored when it died, or is still being stored, has it.
    stage.valkey.wait_idle()
    for key in stage.valkey.call('KEYS', '*'):
        wait.until(lambda key=key: 0 < stage.valkey.call('TTL', key) <= 600, 'a time to live')
    stage.valkey.call('FLUSHALL')


def test_stopped_server(stage):
    """A server that does not answer: every step ends, by the deadline that was given"""
    daemon = stage.other_daemon(server := stage.other_valkey())
    doctor(daemon, OK, '--quick')
    server.process.freeze()
    try:
        checks = doctor(daemon, FAILED, '--quick', '--deadline', '1000')
    finally:
        server.process.thaw()
    says(checks['valkey'], 'failed', 'did not answer within 1000 ms')
    says(checks['session'], 'failed', 'deadline')


tap.run(globals(), Stage())
