"""A cluster under load whose slots and primaries change: each request is answered, no set runs twice, no byte is wrong.

Objects are not replicated, so after a failover keys are missing, or have an older value that came with a full copy.
A cluster that lacks a slot for a moment answers CLUSTERDOWN everywhere, as is the servers' default.

GRD_CLUSTER_TLS=1: the same with TLS. GRD_CLUSTER_ROUNDS: how often each change comes.
"""
import os

from lib import expect, tap, wait
from lib.cluster_stage import ClusterStage
from lib.load import Load
from lib.resp import ServerError
from lib.session import Session

ROUNDS = int(os.environ.get('GRD_CLUSTER_ROUNDS', 1))
TLS = os.environ.get('GRD_CLUSTER_TLS') == '1'
SLOTS_MOVED = 6
LONG_MS = 3000      # of a transfer, so that some are in the middle


def empty(source, slot, target):
    """Moves the keys of a slot: the module's type can be dumped and restored, so MIGRATE carries it."""
    keys = source.cluster('GETKEYSINSLOT', slot, 100)
    if keys:
        source.call('MIGRATE', '127.0.0.1', target.port, '', 0, 20_000, 'REPLACE', 'KEYS', *keys)
    return not keys


def move(cluster, key, target):
    """One slot, live."""
    slot, source = cluster.migrate(key, target)

    def moved():
        try:
            if empty(source, slot, target):
                cluster.finish_migration(slot, target)
                return True
        except ServerError as error:  # a set that had begun before was stored just now
            if 'still hold keys' not in str(error):
                raise
        return False

    wait.until(moved, f'slot {slot} moved')


@tap.slow(300 * ROUNDS)
@tap.waits(50)
def test_resharding(stage):
    """Slots move live, with their values, from primary to primary"""
    cluster = stage.cluster
    with Load(stage, stale=True, errors={'deadline'}) as load:
        for _ in range(ROUNDS):
            for key in load.keys[:SLOTS_MOVED]:
                primaries = cluster.current_primaries()
                move(cluster, key, primaries[(primaries.index(cluster.owner(key)) + 1) % 3])
            load.flows()
    cluster.wait_settled()
    with Session(stage.daemon.admin_path, hello=False) as admin:
        expect.holds(admin.call('status')['transfers']['run_again'] > 0, 'some were redirected')


@tap.slow(300 * ROUNDS)
@tap.waits(50)
def test_failover_by_command(stage):
    """CLUSTER FAILOVER of each primary, in the middle of transfers"""
    cluster = stage.cluster
    with Load(stage, stale=True) as load:
        for _ in range(ROUNDS):
            for primary in cluster.current_primaries():
                with primary.faults(test_delay_before_reply_ms=LONG_MS):
                    wait.until(lambda: primary.info('transfers') >= 2, 'transfers run in the server')
                    cluster.fail_over(primary)
                load.flows()


@tap.slow(300 * ROUNDS)
@tap.waits(50)
def test_death_of_a_primary(stage):
    """kill -9 of a primary in the middle of transfers: its replica takes over, and it comes back as a replica"""
    cluster = stage.cluster
    with Load(stage, stale=True) as load:
        for _ in range(ROUNDS):
            old = cluster.owner(load.keys[0])
            old.set(test_delay_before_reply_ms=LONG_MS)
            wait.until(lambda: old.info('transfers') >= 2, 'transfers run in the server')
            old.process.kill()
            load.flows()
            old.start()
            cluster.wait_settled()
            load.flows()


@tap.slow(300 * ROUNDS)
@tap.waits(50)
def test_failover_of_paused_primaries(stage):
    """CLUSTER FAILOVER while commands are held and connections killed: what was held can run after its answer"""
    cluster = stage.cluster
    with Load(stage, stale=True) as load:
        for _ in range(ROUNDS):
            primary = cluster.owner(load.keys[0])
            with primary.faults(test_delay_before_transfer_ms=300):
                cluster.call_each('CLIENT', 'PAUSE', '300', 'WRITE')
                cluster.call_each('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
                cluster.fail_over(primary)
            cluster.call_each('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
            load.flows()


tap.run(globals(), ClusterStage(tls=TLS, primaries=3, replicas=1, options={'cluster-require-full-coverage': 'yes'},
                                module_options={'test-delay-before-reply-ms': 2}))
