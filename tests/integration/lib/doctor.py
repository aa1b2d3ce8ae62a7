"""glide-rdmactl doctor, run against a daemon, and a look at the form of what it says."""
import json
import subprocess

from lib import expect, paths

NAMES = ['client_socket', 'admin_socket', 'daemon', 'configuration', 'fabric', 'devices', 'memlock', 'huge_pages',
         'device_limits', 'valkey', 'valkey_rdma', 'module', 'region', 'session', 'round_trip', 'revocation']


def _argv(daemon, words, json_output):
    return [paths.built('GRD_CTL'), 'doctor', '--socket', daemon.path, '--admin-socket', daemon.admin_path,
            '--config', daemon.config_path, '--daemon-program', paths.daemon(), *(['--json'] if json_output else []),
            *words]


def run(daemon, *words, user=None, json_output=True):
    identity = {'user': user, 'group': user, 'extra_groups': []} if user is not None else {}
    return subprocess.run(_argv(daemon, words, json_output), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100, env=paths.environment(), **identity)


def start(daemon, *words):
    """Without waiting; what it prints is in `stdout` of the process."""
    return subprocess.Popen(_argv(daemon, words, True), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            env=paths.environment())


def doctor(daemon, status, *words, **arguments):
    """The checks by name, after a look at the form of the whole."""
    done = run(daemon, *words, **arguments)
    expect.equal((done.returncode, done.stderr), (status, b''), done.stdout.decode())
    told = json.loads(done.stdout)
    expect.equal(sorted(told), ['checks', 'healthy', 'summary'])
    expect.equal([check['name'] for check in told['checks']], NAMES)
    for check in told['checks']:
        expect.holds(set(check) - {'advice'} == {'name', 'verdict', 'microseconds', 'text'}, check)
        expect.holds(check['verdict'] in ('ok', 'warning', 'failed', 'skipped') and check['text'], check)
        expect.holds(isinstance(check['microseconds'], int) and 0 <= check['microseconds'] < 100_000_000, check)
        expect.holds('advice' in check or check['verdict'] != 'failed', f'no advice: {check}')
    for verdict, count in told['summary'].items():
        expect.equal(sum(check['verdict'] == verdict for check in told['checks']), count, verdict)
    expect.equal(told['healthy'], status == 0)
    return {check['name']: check for check in told['checks']}


def verdicts(checks, *names):
    return [checks[name]['verdict'] for name in names]


def says(check, verdict, *words):
    expect.equal(check['verdict'], verdict, check)
    for word in words:
        expect.holds(word in check['text'], f'{word!r} is missing in {check}')
