"""A cluster whose nodes speak TLS: every connection to every node is one of TLS, also after a redirection."""
from lib import expect, tap
from lib.cluster_stage import ClusterStage
from lib.session import Session

SIZE = 1 << 20


def ready(stage):
    session = stage.session()
    return session, session.register(stage.memory(SIZE, fill=7))


def test_values_and_keys(stage):
    """Values and keys of all nodes, over TLS alone"""
    session, region = ready(stage)
    keys = [f'tls:{number}' for number in range(30)]
    for number, key in enumerate(keys):
        session.set(region, 0, 1000 + number, key)
        expect.equal(session.get(region, 0, SIZE, key)['length'], 1000 + number)
    expect.equal(session.exists(*keys), [True] * len(keys))
    with Session(stage.daemon.admin_path, hello=False) as admin:
        nodes = admin.call('nodes')['nodes']
    expect.equal(sorted(node['address'] for node in nodes), sorted(node.address for node in stage.cluster.nodes))
    expect.equal({node['transport'] for node in nodes}, {'tls'})


def test_redirection(stage):
    """A redirection leads to a port for TLS too"""
    session, region = ready(stage)
    cluster = stage.cluster
    source, target = cluster.primaries[:2]
    key = cluster.key_of(source, 'redirected')
    slot, _ = cluster.migrate(key, target)
    session.set(region, 0, 500, key)
    expect.equal(target.call('KEYS', 'redirected*'), [key.encode()])
    cluster.finish_migration(slot, target)
    expect.equal(session.get(region, 0, SIZE, key)['length'], 500)


tap.run(globals(), ClusterStage(tls=True, primaries=3))
