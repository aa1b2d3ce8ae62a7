"""A cluster under load whose servers cut off, hold up, sleep and restart: each request is answered, and right.

GRD_CLUSTER_TLS=1: the same with TLS. GRD_CLUSTER_ROUNDS: how often each disturbance comes.
"""
import os

from lib import tap
from lib.cluster_stage import ClusterStage
from lib.load import Load

ROUNDS = int(os.environ.get('GRD_CLUSTER_ROUNDS', 2))
TLS = os.environ.get('GRD_CLUSTER_TLS') == '1'


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_client_kill(stage):
    """CLIENT KILL of every connection, again and again"""
    with Load(stage) as load:
        for _ in range(3 * ROUNDS):
            stage.cluster.call_each('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
            load.flows()


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_client_pause(stage):
    """CLIENT PAUSE, of everything and of what writes: deadlines end what waits, the rest is done later"""
    with Load(stage, errors={'deadline'}) as load:
        for mode in ('ALL', 'WRITE') * (ROUNDS // 2):
            stage.cluster.call_each('CLIENT', 'PAUSE', '400', mode)
            load.flows()


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_debug_sleep(stage):
    """A server that sleeps (DEBUG SLEEP) is waited for, or a deadline ends the wait"""
    with Load(stage, errors={'deadline'}) as load:
        for node in stage.cluster.nodes[:ROUNDS]:
            node.call('DEBUG', 'SLEEP', '0.4')
            load.flows()


@tap.slow(150 * ROUNDS)
@tap.waits(50)
def test_restart(stage):
    """A server that ends in order and comes back, with empty memory"""
    with Load(stage) as load:
        for node in stage.cluster.nodes[:ROUNDS]:
            node.process.terminate()
            node.start()
            load.flows()


tap.run(globals(), ClusterStage(tls=TLS, primaries=3, options={'enable-debug-command': 'yes'},
                                module_options={'test-delay-before-reply-ms': 5}))
