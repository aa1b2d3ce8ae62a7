"""glide-rdmactl doctor: each check, where all is well and where something is broken; its exit status and JSON."""
import os
import subprocess

from lib import expect, paths, tap
from lib.doctor import NAMES, doctor, run, says, verdicts
from lib.faulty_fabric import FaultyFabric
from lib.scripted_server import Answer, ScriptedServer
from lib.stage import Stage
from lib.users import NOBODY

OK, FAILED = 0, 1
# Pieces so slow that a get is taken back in the middle of them.
SLOW = {'chunk_size': 128 * 1024, 'test_delay_between_chunks_ms': 50}


def test_all_is_well(stage):
    """Everything is there: all checks are good, nothing is left behind, status 0"""
    before = stage.valkey.call('DBSIZE')
    checks = doctor(stage.daemon, OK, '--quick')
    for name in NAMES:
        wanted = {'devices': ['skipped'], 'valkey_rdma': ['skipped'], 'revocation': ['skipped'], 'huge_pages': ['ok', 'skipped']}.get(name, ['ok'])
        expect.holds(checks[name]['verdict'] in wanted, checks[name])
    says(checks['client_socket'], 'ok', stage.daemon.path, 'mode 0666')
    says(checks['configuration'], 'ok', stage.daemon.config_path)
    says(checks['fabric'], 'ok', 'libfabric 2', 'provider tcp is usable')
    says(checks['devices'], 'skipped', 'tcp needs no')
    says(checks['memlock'], 'ok', 'pins nothing')
    says(checks['valkey'], 'ok', f'127.0.0.1:{stage.valkey.port}', 'transport tcp')
    says(checks['round_trip'], 'ok', 'path rdma', 'checksum compared')
    says(checks['revocation'], 'skipped', '--quick')
    expect.equal(stage.valkey.call('DBSIZE'), before)
    expect.holds(stage.valkey.info('rdma_reads_total') > 0 and stage.valkey.info('rdma_writes_total') > 0,
                 'no value was moved')


def test_for_people(stage):
    """Without --json: a line for each check, and a summary"""
    done = run(stage.daemon, '--quick', json_output=False)
    lines = done.stdout.decode().splitlines()
    expect.equal([line.split()[1] for line in lines[:-1]], NAMES)
    expect.equal(lines[-1].split()[1::2][:2], ['ok,', 'warnings,'])


def test_key_prefix(stage):
    """--key-prefix: an ACL that admits only such keys lets the doctor pass"""
    stage.valkey.call('ACL', 'SETUSER', 'narrow', 'on', '>secret', '~doctors:*', '+@all')
    path = os.path.join(stage.new_folder(), 'password')
    with open(path, 'w', encoding='ascii') as file:
        file.write('secret')
    daemon = stage.other_daemon(config={'valkey.user': 'narrow', 'valkey.password_file': path})
    doctor(daemon, OK, '--quick', '--key-prefix', 'doctors:')
    checks = doctor(daemon, FAILED, '--quick')
    says(checks['valkey'], 'failed', 'NOPERM')


def test_no_daemon(stage):
    """No daemon: what needs none is checked by the program, the rest is skipped with that reason"""
    daemon = stage.other_daemon()
    expect.equal(daemon.stop(), 0)
    stage.forget(daemon)
    checks = doctor(daemon, FAILED)
    expect.equal(verdicts(checks, 'client_socket', 'daemon', 'configuration', 'fabric'),
                 ['failed', 'failed', 'ok', 'ok'])
    says(checks['daemon'], 'failed', 'no_daemon')
    says(checks['fabric'], 'ok', 'provider tcp is usable')
    says(checks['devices'], 'skipped', 'tcp needs no')
    for name in ('memlock', 'device_limits', 'valkey', 'module', 'region', 'session', 'round_trip'):
        says(checks[name], 'skipped', 'needs')


def test_wrong_configuration(stage):
    """A mistake in the configuration is told with file and line"""
    path = os.path.join(stage.new_folder(), 'glide-rdmad.conf')
    with open(path, 'w', encoding='ascii') as file:
        file.write('[fabric]\nprovidr = tcp\n')
    checks = doctor(stage.daemon, FAILED, '--quick', '--config', path)
    says(checks['configuration'], 'failed', path, 'providr')
    expect.equal(verdicts(checks, 'round_trip'), ['ok'])


def test_no_program(stage):
    """Without the program glide-rdmad its checks are skipped"""
    for program in ('/nonexistent/glide-rdmad', '/bin/true'):
        checks = doctor(stage.daemon, OK, '--quick', '--daemon-program', program)
        says(checks['configuration'], 'skipped', '--daemon-program')
    expect.equal(verdicts(checks, 'fabric'), ['ok'])


def test_unprivileged(stage):
    """A user without rights: the admin socket is skipped with its mode, all else works"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    stage.other_daemon()
    checks = doctor(stage.daemon, OK, '--quick', user=NOBODY)
    says(checks['admin_socket'], 'skipped', 'mode 0600')
    expect.equal(verdicts(checks, 'client_socket', 'daemon', 'round_trip'), ['ok'] * 3)


def test_closed_socket(stage):
    """A client socket that does not admit the user: failed, with the group that is needed"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    daemon = stage.other_daemon(config={'socket main.mode': '0660'})
    checks = doctor(daemon, FAILED, '--quick', user=NOBODY)
    says(checks['client_socket'], 'failed', 'may not connect', 'mode 0660')
    expect.holds('group' in checks['client_socket']['advice'], checks['client_socket'])
    says(checks['daemon'], 'failed', 'no_access')


def test_closed_folder(stage):
    """A directory that does not let the user look at the socket"""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    daemon = stage.other_daemon()
    os.chmod(daemon.folder, 0o700)
    checks = doctor(daemon, FAILED, '--quick', user=NOBODY)
    says(checks['client_socket'], 'failed', 'Permission denied')
    expect.holds('directory' in checks['client_socket']['advice'], checks['client_socket'])
    says(checks['admin_socket'], 'skipped', 'Permission denied')
    says(checks['configuration'], 'skipped', 'not for this user')


def test_not_a_socket(stage):
    """A path that is no socket"""
    path = os.path.join(stage.new_folder(), 'file')
    with open(path, 'w', encoding='ascii'):
        pass
    checks = doctor(stage.daemon, FAILED, '--quick', '--socket', path)
    says(checks['client_socket'], 'failed', 'no socket')


def test_fallback(stage):
    """Without a fabric, where values may move over TCP: the fabric has failed, and what answers is said as it is"""
    daemon = stage.other_daemon(config={'valkey.fallback': 'tcp'},
                                environment={'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'})
    checks = doctor(daemon, FAILED, '--quick')
    expect.equal(verdicts(checks, 'fabric', 'session', 'round_trip'), ['failed', 'ok', 'ok'])
    says(checks['session'], 'ok', 'over TCP, by 1 of 1')
    says(checks['round_trip'], 'ok', 'path tcp')


def test_server_down(stage):
    """A server that cannot be reached is told by its address; the fabric is still good"""
    daemon = stage.other_daemon(address='127.0.0.1:1')
    checks = doctor(daemon, FAILED)
    says(checks['daemon'], 'failed', 'cannot carry values')
    says(checks['valkey'], 'failed', '127.0.0.1:1')
    expect.equal(verdicts(checks, 'fabric', 'module', 'region', 'session'), ['ok', 'skipped', 'ok', 'failed'])
    expect.equal(verdicts(checks, 'round_trip', 'revocation'), ['skipped'] * 2)


def test_without_module(stage):
    """A server without the module"""
    daemon = stage.other_daemon(stage.other_valkey(module=False))
    checks = doctor(daemon, FAILED)
    expect.equal(verdicts(checks, 'valkey', 'module', 'session'), ['ok', 'failed', 'failed'])
    expect.holds('loadmodule' in checks['module']['advice'], checks['module'])


def test_module_of_another_version(stage):
    """A module that has BLOB.INFO, and does not know BLOB.RDMA_HELLO or BLOB.RDMA_SET"""
    with ScriptedServer(stage.valkey) as server:
        unknown = Answer(b"-ERR unknown command 'BLOB', with args beginning with: \r\n")
        with server.script(BLOB_RDMA_SET=unknown):
            checks = doctor(stage.other_daemon(server), FAILED, '--quick')
        says(checks['round_trip'], 'failed', 'cannot be stored')
        expect.equal(verdicts(checks, 'module', 'session'), ['ok', 'ok'])
        with server.script(BLOB_RDMA_HELLO=unknown):
            checks = doctor(stage.other_daemon(server), FAILED, '--quick')
        says(checks['session'], 'failed', 'BLOB.RDMA_HELLO is unknown')
        expect.holds('of a version with' in checks['session']['advice'], checks['session'])
        expect.equal(verdicts(checks, 'module', 'round_trip'), ['ok', 'skipped'])


def test_without_fabric(stage):
    """A fabric that cannot be used"""
    daemon = stage.other_daemon(environment={'GLIDE_RDMAD_FABRIC_OBJECT': '/nonexistent'})
    checks = doctor(daemon, FAILED)
    says(checks['fabric'], 'failed', '/nonexistent')
    expect.equal(verdicts(checks, 'valkey', 'module', 'region'), ['ok', 'ok', 'failed'])


def test_quota_too_small(stage):
    """A quota that leaves no room for the region"""
    daemon = stage.other_daemon(config={'policy.pinned_bytes': '1M'})
    checks = doctor(daemon, FAILED)
    says(checks['region'], 'failed', 'over_quota')
    expect.holds('[policy]' in checks['region']['advice'], checks['region'])


def test_drained(stage):
    """A daemon that was drained: a warning, and what needs transfers is skipped"""
    daemon = stage.other_daemon()
    subprocess.run([paths.built('GRD_CTL'), 'drain', '--admin-socket', daemon.admin_path], check=True, timeout=100,
                   stdout=subprocess.DEVNULL, env=paths.environment())
    checks = doctor(daemon, OK, '--quick')
    says(checks['daemon'], 'warning', 'takes no new transfers')
    says(checks['region'], 'skipped', 'no transfers now')
    expect.equal(verdicts(checks, 'valkey', 'module', 'session', 'round_trip'), ['ok', 'ok', 'skipped', 'skipped'])


def test_one_session(stage):
    """A quota of one session is told, as the doctor needs two"""
    checks = doctor(stage.other_daemon(config={'policy.sessions': '1'}), FAILED, '--quick')
    says(checks['daemon'], 'failed', 'sessions')
    expect.holds('two sessions' in checks['daemon']['advice'], checks['daemon'])
    expect.equal(verdicts(checks, 'valkey', 'region', 'round_trip'), ['skipped'] * 3)


def test_room_for_no_large_value(stage):
    """A quota that leaves no room for the revocation check: not measured, and never good"""
    daemon = stage.other_daemon(config={'policy.pinned_bytes': '4M'})
    says(doctor(daemon, OK)['revocation'], 'skipped', 'not measured', 'over_quota')


def test_wrong_checksum(stage):
    """Bytes that change on their way"""
    with stage.valkey.faults(test_wrong_crc='yes'):
        checks = doctor(stage.daemon, FAILED, '--quick')
    says(checks['round_trip'], 'failed', 'checksum')
    expect.holds('do not use' in checks['round_trip']['advice'], checks['round_trip'])


def test_revocation(stage):
    """The revocation check takes a get back in mid-bytes, and no byte comes late"""
    with stage.valkey.faults(**SLOW):
        before = stage.valkey.call('DBSIZE')
        says(doctor(stage.daemon, OK, '--revocation-bytes', '2M')['revocation'], 'ok', '2.0 MiB', 'no byte')
    expect.equal(stage.valkey.call('DBSIZE'), before)
    stage.valkey.wait_idle()


def test_revocation_too_quick(stage):
    """Gets that are over before they can be taken back: not measured, and never good"""
    daemon = stage.other_daemon(config={'fabric.revoke_grace_ms': 10000})
    says(doctor(daemon, OK, '--revocation-bytes', '1M')['revocation'], 'skipped', 'not measured', '--revocation-bytes')


def test_late_bytes(stage):
    """A fabric that does not let go of a cancelled get: the check fails"""
    fabric = FaultyFabric(stage.new_folder())
    daemon = stage.other_daemon(environment=fabric.environment)
    fabric.switch_on('keep-endpoint')
    with stage.valkey.faults(**SLOW):
        checks = doctor(daemon, FAILED, '--revocation-bytes', '8M')
    says(checks['revocation'], 'failed', 'bytes of its window changed')
    expect.holds('not safe' in checks['revocation']['advice'], checks['revocation'])
    daemon.kill()
    stage.forget(daemon)


def test_kept_memory(stage):
    """A device that reports that it did not let go: the check fails"""
    fabric = FaultyFabric(stage.new_folder())
    daemon = stage.other_daemon(environment=fabric.environment)
    fabric.switch_on('fail-endpoint')
    with stage.valkey.faults(**SLOW):
        checks = doctor(daemon, FAILED, '--revocation-bytes', '2M')
    says(checks['revocation'], 'failed', 'did not let go')
    daemon.kill()
    stage.forget(daemon)


tap.run(globals(), Stage())
