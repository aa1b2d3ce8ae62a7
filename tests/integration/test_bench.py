"""glide-rdmactl bench: what it counts, what it refuses, and that nothing of it stays on the server."""
import json
import signal
import subprocess

from lib import expect, paths, tap, wait
from lib.stage import Stage

USAGE, DATA = 64, 65
LATENCY_NOTE = b'glide-rdmactl: bench: one transfer in flight measures latency, not throughput\n'


def argv(stage, *words, daemon=None):
    return [paths.built('GRD_CTL'), 'bench', '--socket', (daemon or stage.daemon).path, *words]


def run(stage, *words, **arguments):
    return subprocess.run(argv(stage, *words, **arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100, env=paths.environment())


def bench(stage, *words, notes=b'', **arguments):
    """The results of a good run, after a look at each."""
    done = run(stage, '--json', *words, **arguments)
    expect.equal((done.returncode, done.stderr), (0, notes))
    told = json.loads(done.stdout)
    expect.equal(sorted(told), ['mix', 'results', 'verify'])
    for result in told['results']:
        expect.equal(sorted(result), ['get', 'in_flight', 'seconds', 'set', 'size'])
        for kind in ('get', 'set'):
            plausible(result, result[kind])
    return told['results']


def plausible(result, figures):
    """What follows from the numbers themselves."""
    expect.equal(sorted(figures), ['bytes', 'gb_per_second', 'latency_us', 'transfers', 'transfers_per_second'])
    expect.equal(figures['bytes'], figures['transfers'] * result['size'])
    close(figures['transfers_per_second'] * result['seconds'], figures['transfers'])
    close(figures['gb_per_second'] * result['seconds'] * 1e9, figures['bytes'])
    latency = figures['latency_us']
    expect.holds(latency['p50'] <= latency['p90'] <= latency['p99'] <= latency['max'], latency)
    expect.holds((latency['p50'] > 0) == (figures['transfers'] > 0), latency)
    # Each lasted at least as long as half of them lasted, and no more than `in_flight` lasted at once.
    expect.holds(figures['transfers'] * latency['p50'] / 2 <= result['seconds'] * 1e6 * result['in_flight'] * 1.05,
                 f'latencies do not fit into the time: {result}')


def close(value, wanted):
    expect.holds(abs(value - wanted) <= 1e-6 * max(1, abs(wanted)), f'{value} is not {wanted}')


def transfers(result):
    return result['get']['transfers'], result['set']['transfers']


def test_counts(stage):
    """Every size with every number in flight, and as many transfers of each kind as were asked for"""
    before = stage.valkey.call('DBSIZE')
    results = bench(stage, '--size', '4K,100000', '--in-flight', '1,8', '--count', '200', '--mix', '25',
                    notes=LATENCY_NOTE)
    expect.equal([(result['size'], result['in_flight']) for result in results],
                 [(4096, 1), (4096, 8), (100000, 1), (100000, 8)])
    for result in results:
        expect.equal(transfers(result), (50, 150))
    expect.equal(stage.valkey.call('DBSIZE'), before)


def test_server_counts_the_same(stage):
    """The server has seen what bench says, and the sets that came before"""
    reads, writes = stage.valkey.info('rdma_reads_total'), stage.valkey.info('rdma_writes_total')
    bench(stage, '--size', '64K', '--in-flight', '4', '--count', '100', '--mix', '70')
    expect.equal(stage.valkey.info('rdma_reads_total') - reads, 4 + 30)
    expect.equal(stage.valkey.info('rdma_writes_total') - writes, 70)


def test_only_one_kind(stage):
    """--mix 0 and 100"""
    for mix, wanted in (('0', (0, 20)), ('100', (20, 0))):
        result, = bench(stage, '--size', '4K', '--count', '20', '--mix', mix)
        expect.equal(transfers(result), wanted)


def test_time(stage):
    """--seconds: so long, and no longer; when a transfer has ended another one begins"""
    for seconds in (1, 4, 16):  # how many that are is the machine's business
        result, = bench(stage, '--size', '4K', '--seconds', str(seconds))
        expect.holds(seconds <= result['seconds'] < seconds + 30, result)
        if sum(transfers(result)) > 16:
            break
    expect.holds(sum(transfers(result)) > 16, result)


def test_in_flight(stage):
    """As many are in flight as were asked for"""
    with stage.valkey.faults(test_delay_before_reply_ms=1000):
        result, = bench(stage, '--size', '4K', '--in-flight', '8', '--count', '32', '--mix', '0')
    expect.holds(result['seconds'] < 32, f'one after the other: {result}')
    expect.holds(result['set']['latency_us']['p50'] >= 1_000_000, result)


def test_for_people(stage):
    """Without --json: a heading, and a line for each kind"""
    done = run(stage, '--size', '4K', '--in-flight', '4', '--count', '10')
    lines = done.stdout.decode().splitlines()
    expect.equal((done.returncode, done.stderr), (0, b''))
    expect.equal([line.split()[2:5] for line in lines],
                 [['FLIGHT', 'KIND', 'TRANSFERS'], ['4', 'get', '5'], ['4', 'set', '5']])


def test_verify(stage):
    """--verify finds wrong bytes, and without it nobody looks"""
    bench(stage, '--size', '64K', '--count', '20', '--verify')
    with stage.valkey.faults(test_wrong_crc='yes'):
        bench(stage, '--size', '64K', '--count', '20', '--mix', '100')
        done = run(stage, '--size', '64K', '--count', '20', '--mix', '100', '--verify')
    expect.equal(done.returncode, DATA)
    expect.holds(b'checksum' in done.stderr, done.stderr)
    expect.equal(stage.valkey.call('KEYS', '*bench*'), [])


def test_interrupted(stage):
    """A signal ends it: figures so far, no key is left, and the caller sees the signal"""
    with subprocess.Popen(argv(stage, '--json', '--size', '4K', '--in-flight', '4', '--seconds', '1000'),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=paths.environment()) as process:
        wait.until(lambda: len(stage.valkey.call('KEYS', 'glide-rdmactl:bench:*')) == 4, 'its keys are there')
        process.send_signal(signal.SIGINT)
        told = json.loads(process.stdout.read())
        expect.equal(process.wait(60), -signal.SIGINT)
    expect.equal(len(told['results']) <= 1, True)
    expect.equal(stage.valkey.call('KEYS', '*bench*'), [])


def test_interrupted_twice(stage):
    """Where the server hangs, a second signal ends it at once"""
    server = stage.other_valkey()
    with subprocess.Popen(argv(stage, '--size', '4K', '--seconds', '1000', daemon=stage.other_daemon(server)),
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=paths.environment()) as process:
        wait.until(lambda: len(server.call('KEYS', '*bench*')) == 16, 'its keys are there')
        server.process.freeze()
        try:
            process.send_signal(signal.SIGINT)
            expect.holds(not wait.soon(lambda: process.poll() is not None, 0.5), 'it left transfers and keys behind')
            # Again: the first one may not have been looked at yet, on a busy host, and two that wait are one.
            wait.until(lambda: process.send_signal(signal.SIGINT) or wait.soon(lambda: process.poll() is not None, 0.5),
                       'a second signal ends it')
            expect.equal(process.returncode, -signal.SIGINT)
        finally:
            server.process.thaw()


def test_key_prefix(stage):
    """--key-prefix: its keys begin so, and no other"""
    with subprocess.Popen(argv(stage, '--size', '4K', '--in-flight', '2', '--seconds', '1000', '--key-prefix', 'mine:'),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=paths.environment()) as process:
        wait.until(lambda: len(stage.valkey.call('KEYS', 'mine:bench:*')) == 2, 'its keys are there')
        expect.equal(stage.valkey.call('KEYS', 'glide*'), [])
        process.terminate()
        expect.equal(process.wait(60), -signal.SIGTERM)
    expect.equal(stage.valkey.call('KEYS', '*'), [])


def test_refusals(stage):
    """Lists, numbers and limits that cannot be: status 64, and the limit is named"""
    daemon = stage.other_daemon(config={'limits.region_bytes': '16M', 'policy.queue': '32'})
    for words, said in ((['--size', '4K,'], '--size'), (['--size', '0'], '--size'), (['--size', '4X'], '--size'),
                        (['--in-flight', '5000'], '--in-flight'), (['--mix', '101'], '--mix'),
                        (['--seconds', '1', '--count', '1'], 'exclude'),
                        (['--size', '1M', '--in-flight', '17'], 'region_bytes'),
                        (['--size', '4K', '--in-flight', '33'], '32')):
        done = run(stage, *words, daemon=daemon)
        expect.equal((done.returncode, done.stdout), (USAGE, b''), words)
        expect.holds(said in done.stderr.decode(), f'{words}: {done.stderr}')


def test_server_refuses(stage):
    """A transfer that fails ends it, with the reason"""
    server = stage.other_valkey(module=False)
    done = run(stage, '--size', '4K', '--count', '10', daemon=stage.other_daemon(server))
    expect.holds(done.returncode not in (0, USAGE) and b'module' in done.stderr, f'{done.returncode} {done.stderr}')


tap.run(globals(), Stage())
