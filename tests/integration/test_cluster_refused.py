"""A cluster under load whose servers refuse, by ACL or for want of a majority: each request is answered, and right.

GRD_CLUSTER_TLS=1: the same with TLS. GRD_CLUSTER_ROUNDS: how often each refusal comes.
"""
import os

from lib import tap, wait
from lib.cluster_stage import ClusterStage
from lib.load import Load
from lib.session import Session

ROUNDS = int(os.environ.get('GRD_CLUSTER_ROUNDS', 2))
LONGER_THAN_NOTICING_MS = 4000
TLS = os.environ.get('GRD_CLUSTER_TLS') == '1'


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_acl(stage):
    """What the user may no longer do is refused with the server's reason, and goes on when it may again"""
    with Load(stage, errors={'server_error', 'server_down', 'not_usable', 'lost', 'deadline'}) as load:
        for _ in range(ROUNDS):
            stage.cluster.call_each('ACL', 'SETUSER', 'default', '-blob.rdma_set')
            refused_sets(load)
            stage.cluster.call_each('ACL', 'SETUSER', 'default', '+blob.rdma_set')
            load.flows()
        # Nor may it begin a session.
        stage.cluster.call_each('ACL', 'SETUSER', 'default', '-blob.rdma_hello')
        stage.cluster.call_each('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
        refused_sets(load)
        stage.cluster.call_each('ACL', 'SETUSER', 'default', '+blob.rdma_hello')
        load.flows()


def refused_sets(load):
    """Until some sets were answered with an error, from now on."""
    before = load.failed_sets()
    wait.until(lambda: load.failed_sets() >= before + 3, lambda: f'sets are refused: {dict(load.counts)}')


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_majority_lost(stage):
    """A server without its majority answers CLUSTERDOWN, but not to what it has begun: nothing of that is sent again"""
    cluster = stage.cluster
    rest, *others = cluster.nodes
    session = stage.session()
    region = session.register(stage.memory(4096, fill=7))
    key = cluster.key_of(rest, 'down')
    with Load(stage) as load:
        with rest.faults(test_delay_before_reply_ms=LONGER_THAN_NOTICING_MS):
            wait.until(lambda: rest.info('transfers') >= 2, 'transfers run in the server')
            for node in others:
                node.process.freeze()
            try:
                wait.until(lambda: rest.cluster_info('cluster_state') == 'fail', 'the cluster is down')
                before = run_again(stage)
                refused = session.start_set(region, 0, 100, key)
                wait.until(lambda: run_again(stage) > before, 'a set is refused')
            finally:
                for node in others:
                    node.process.thaw()
        session.wait(refused)
        cluster.wait_settled()
        load.flows()


def run_again(stage):
    with Session(stage.daemon.admin_path, hello=False) as admin:
        return admin.call('status')['transfers']['run_again']


tap.run(globals(), ClusterStage(tls=TLS, primaries=3, module_options={'test-delay-before-reply-ms': 5}))
