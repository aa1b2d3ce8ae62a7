"""A cluster whose primaries change: by command, and by the death of one. The daemon goes on without help."""
from lib import expect, tap, wait
from lib.session import RpcError, Session
from lib.stage import Stage

SIZE = 1 << 20
TAKEOVER_WITHIN = 90


def ready(stage):
    session = stage.session()
    return session, session.register(stage.memory(SIZE, fill=7))


def nodes(stage):
    with Session(stage.daemon.admin_path, hello=False) as admin:
        return {node['address']: node for node in admin.call('nodes')['nodes']}


def primaries(stage):
    return sorted(address for address, node in nodes(stage).items() if node['role'] == 'primary')


def current(stage):
    return sorted(node.address for node in stage.cluster.alive() if node.is_primary())


def test_nodes(stage):
    """The nodes that the daemon tells of are the primaries, with their slots and replicas"""
    session, region = ready(stage)
    session.set(region, 0, 100, 'some key')
    wait.until(lambda: {node['state'] for node in nodes(stage).values()} == {'up'}, lambda: nodes(stage))
    found = nodes(stage)
    expect.equal(sorted(found), current(stage))
    expect.equal({node['replicas'] for node in found.values()}, {1})
    expect.equal(sum(node['slots'] for node in found.values()), 16384)
    expect.equal(stage.session().hello['usable'], True)


def test_failover_by_command(stage):
    """CLUSTER FAILOVER: sets and keys.* for its slots go on at the new primary"""
    session, region = ready(stage)
    cluster = stage.cluster
    key = 'command'
    old = cluster.owner(key)
    session.set(region, 0, 100, key)
    new = cluster.fail_over(old)
    session.set(region, 0, 200, key)
    expect.equal(new.call('BLOB.INFO', key, 'LEN'), 200)
    expect.equal(session.exists(key), [True])
    expect.equal(session.get(region, 0, 200, key)['length'], 200)
    wait.until(lambda: primaries(stage) == current(stage), lambda: f'the new primaries: {nodes(stage)}')


def test_death_of_a_primary(stage):
    """kill -9 of a primary: what is asked for meanwhile is answered when its replica has taken over"""
    session, region = ready(stage)
    cluster = stage.cluster
    key = 'death'
    old = cluster.owner(key)
    session.set(region, 0, 100, key)
    other = next(name for name in ('a', 'b', 'c', 'd', 'e', 'f') if cluster.owner(name) is not old)
    replica = cluster.replica_of(old)
    replica.process.freeze()  # it does not take over before others were seen not to be held up
    old.process.kill()
    wait.until(lambda: nodes(stage)[old.address]['state'] != 'up', 'the daemon knows: nothing is sent to the dead one')
    number = session.start_set(region, 0, 300, key)
    asked = session.request('keys.exists', keys=[other, key])
    session.set(region, 1000, 100, other)
    expect.equal([session.answered(number), session.answered(asked)], [False, False], 'a set for another node waited')
    replica.process.thaw()
    session.wait(number, TAKEOVER_WITHIN)
    entries = session.wait(asked, TAKEOVER_WITHIN)['keys']
    expect.holds(all('exists' in entry for entry in entries), entries)
    expect.equal(cluster.owner(key).call('BLOB.INFO', key, 'LEN'), 300)
    wait.until(lambda: primaries(stage) == current(stage), lambda: f'the new primaries: {nodes(stage)}')
    old.start()
    cluster.wait_settled()


def test_deadline_during_a_failover(stage):
    """A primary that hangs: a deadline ends what waits for it, and says why"""
    session, region = ready(stage)
    cluster = stage.cluster
    key = 'hang'
    old = cluster.owner(key)
    session.set(region, 0, 100, key)
    old.process.freeze()
    try:
        with expect.error('deadline'):
            session.set(region, 0, 100, key, deadline_ms=300)
    finally:
        old.process.thaw()
    wait.until(lambda: stored_again(session, region, key), 'the key can be set again')
    cluster.wait_settled()


def stored_again(session, region, key):
    try:
        session.set(region, 0, 100, key)
        return True
    except RpcError:
        return False


tap.run(globals(), Stage(cluster={'primaries': 3, 'replicas': 1}))
