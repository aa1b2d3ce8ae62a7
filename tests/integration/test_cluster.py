"""A Valkey cluster: values and keys find their primary, also while slots move."""
from lib import expect, tap, wait
from lib.daemon import ini
from lib.doctor import doctor, says
from lib.memory import noise
from lib.ports import free_port
from lib.session import Session
from lib.stage import Stage

SIZE = 1 << 20
NODES = 6


def ready(stage):
    session = stage.session()
    memory = stage.memory(SIZE)
    return session, memory, session.register(memory)


def status(stage):
    with Session(stage.daemon.admin_path, hello=False) as admin:
        return admin.call('status')


def round_trip(session, memory, region, key, data):
    """set, and get into another place."""
    memory[:len(data)] = data
    session.set(region, 0, len(data), key)
    got = session.get(region, SIZE // 2, len(data), key)
    expect.equal((got['found'], got['length'], got['path']), (True, len(data), 'rdma'), key)
    expect.same_bytes(memory[SIZE // 2:SIZE // 2 + len(data)], data, key)


def stored_at(stage, key):
    return [node for node in stage.cluster.primaries if any(name == key.encode() for name in node.call('KEYS', '*'))]


def test_values_find_their_primary(stage):
    """Values of many slots, each stored by the node that serves its key"""
    session, memory, region = ready(stage)
    keys = [f'spread:{number}' for number in range(120)]
    for number, key in enumerate(keys):
        round_trip(session, memory, region, key, noise(100 + number, seed=number))
    per_node = [sum(name in [key.encode() for key in keys] for name in node.call('KEYS', 'spread:*'))
                for node in stage.cluster.primaries]
    expect.equal(sum(per_node), len(keys))
    expect.holds(min(per_node) > 5, f'keys for each node: {per_node}')
    for key in keys:
        expect.equal(stored_at(stage, key), [stage.cluster.owner(key)], key)
    # Every node was reached without a redirection: the map is right.
    nodes = status(stage)['nodes']
    expect.equal([node['role'] for node in nodes], ['primary'] * NODES)
    expect.equal(sum(node['slots'] for node in nodes), 16384)
    expect.equal(status(stage)['transfers']['run_again'], 0)


def test_hashtags(stage):
    """Keys with one hashtag share a slot, and a node"""
    session, memory, region = ready(stage)
    owner = stage.cluster.owner('{tag}')
    for number in range(6):
        round_trip(session, memory, region, f'{number}{{tag}}', noise(64, seed=number))
        expect.equal(stored_at(stage, f'{number}{{tag}}'), [owner])


def test_keys_of_all_nodes(stage):
    """keys.*: one request with keys of every node is answered for each key, in the order asked"""
    session, memory, region = ready(stage)
    memory[:100] = noise(100, seed=1)
    keys = [f'many:{number}' for number in range(40)]
    stored = keys[::2]
    for key in stored:
        session.set(region, 0, 100, key)
    expect.holds(len({stage.cluster.owner(key).id for key in keys}) == NODES, 'keys of every node')
    expect.equal(session.exists(*keys), [key in stored for key in keys])
    entries = session.keys('keys.info', *keys)
    expect.equal([entry['found'] for entry in entries], [key in stored for key in keys])
    expect.equal({entry['length'] for entry in entries if entry['found']}, {100})
    expect.equal(session.delete(*keys), [key in stored for key in keys])
    expect.equal(session.exists(*keys), [False] * len(keys))


def test_an_error_for_one_key(stage):
    """keys.*: an error of one key stands at its place, the others are answered"""
    session, memory, region = ready(stage)
    keys = [stage.cluster.key_of(node, 'mixed') for node in stage.cluster.primaries]
    session.set(region, 0, 100, keys[0])
    stage.cluster.owner(keys[1]).call('SET', keys[1], 'no large object')
    entries = session.keys('keys.info', *keys)
    expect.equal(entries[0].get('found'), True)
    expect.equal(entries[1]['error']['name'], 'wrong_type')
    expect.equal(entries[2].get('found'), False)


def test_slot_that_moved(stage):
    """A slot that was moved: MOVED is followed, for values and keys, and the map learns it"""
    session, memory, region = ready(stage)
    cluster = stage.cluster
    source, target = cluster.primaries[0], cluster.primaries[1]
    key = cluster.key_of(source, 'moved')
    round_trip(session, memory, region, key, noise(99, seed=3))
    session.delete(key)
    slot, _ = cluster.migrate(key, target)
    cluster.finish_migration(slot, target)
    cluster.wait_settled()  # else the daemon may ask one that does not know it yet, and is sent back and forth
    before = status(stage)['transfers']['run_again']
    round_trip(session, memory, region, key, noise(98, seed=4))
    expect.equal(stored_at(stage, key), [target])
    expect.equal(session.exists(key), [True])
    after = status(stage)['transfers']['run_again']
    expect.holds(before < after <= before + 2, f'redirections: {after - before}')
    served = {node.address: sum(last - first + 1 for first, last, primary, *_ in node.cluster('SLOTS')
                                if primary[2].decode() == node.id) for node in cluster.primaries}
    wait.until(lambda: {node['address']: node['slots'] for node in status(stage)['nodes']} == served,
               lambda: f'the map has settled: {status(stage)["nodes"]}, wanted {served}')
    session.set(region, 0, 100, key)
    expect.equal(status(stage)['transfers']['run_again'], after, 'the map knows it')


def test_slot_on_the_move(stage):
    """During a live migration new keys go to the target (ASK), old ones are served by the source"""
    session, memory, region = ready(stage)
    cluster = stage.cluster
    source, target = cluster.primaries[2], cluster.primaries[1]
    tag = cluster.key_of(source, 'tag')
    old, new = f'{{{tag}}}old', f'{{{tag}}}new'
    round_trip(session, memory, region, old, noise(500, seed=5))
    slot, _ = cluster.migrate(tag, target)
    round_trip(session, memory, region, new, noise(501, seed=6))
    round_trip(session, memory, region, old, noise(502, seed=7))
    expect.equal(stored_at(stage, new), [target])
    expect.equal(stored_at(stage, old), [source])
    expect.equal(session.exists(old, new, f'{{{tag}}}none'), [True, True, False])
    memory[:50] = noise(50, seed=8)
    got = session.set(region, 0, 50, f'{{{tag}}}short', ttl_ms=60_000)
    expect.equal(got.get('ttl_applied'), True)
    session.delete(old)
    cluster.finish_migration(slot, target)
    expect.equal(session.exists(new, old), [True, False])
    expect.equal(session.get(region, 0, 501, new)['length'], 501)


def test_few_lanes(stage):
    """lanes_max = 2 and 6 nodes: everything finishes, and there are never more than 2 endpoints"""
    daemon = stage.other_daemon(config={'fabric.lanes_max': 2})
    memory = stage.memory(SIZE)
    with stage.session(daemon) as session, Session(daemon.admin_path, hello=False) as admin:
        region = session.register(memory)
        lanes = []
        keys = [f'few:{number}' for number in range(60)]
        for start in (session.start_set, session.start_get):
            numbers = [start(region, 1000 * number, 1000, key) for number, key in enumerate(keys)]
            answered = False
            while not answered:
                answered = session.answered(numbers[-1])
                lanes.append(admin.call('status')['fabric']['lanes'])
            for number in numbers:
                session.wait(number)
        expect.equal(max(lanes), 2)
        status = admin.call('status')
        expect.holds(status['fabric']['lanes'] <= 2, status['fabric'])
        expect.equal(status['transfers']['ended']['done'], 2 * len(keys))
        for key in keys:
            expect.equal(stored_at(stage, key), [stage.cluster.owner(key)], key)


def test_node_hangs_with_all_lanes(stage):
    """lanes_max = 2, both at a node that hangs: who waits ends by its deadline, and has a lane when theirs are over"""
    daemon = stage.other_daemon(config={'fabric.lanes_max': 2, 'valkey.connections': 2,
                                        'valkey.connect_timeout_ms': 1000})
    first, second = stage.cluster.primaries[:2]
    key, other = stage.cluster.key_of(first), stage.cluster.key_of(second)
    admin = Session(daemon.admin_path, hello=False)
    with admin, stage.session(daemon) as session, stage.memory(SIZE) as memory:
        region = session.register(memory)

        def carriers(which):
            return [node[which] for node in admin.call('status')['nodes'] if str(first.port) in node['address']]

        def sets(**arguments):
            return [session.start_set(region, 1000 * number, 1000, key, **arguments) for number in range(2)]

        def both_connected():
            for number in sets():
                session.wait(number)
            return carriers('carriers') == [2]

        with first.faults(test_delay_before_reply_ms=500):
            wait.until(both_connected, lambda: f'two connections: {carriers("carriers")}')
        first.process.freeze()
        try:
            hanging = sets()
            wait.until(lambda: carriers('carriers_busy') == [2], 'both hang')
            with expect.error('deadline') as late:
                session.set(region, 5000, 1000, other, deadline_ms=300)
            expect.equal(late.raised.data['may_have_run'], False)
            expect.equal([session.answered(number) for number in hanging], [False] * 2)
            for number in hanging:
                session.call('transfer.cancel', id=number)
            expect.equal([session.outcome(number) for number in hanging], ['cancelled'] * 2)
            session.set(region, 5000, 1000, other, deadline_ms=50_000)
        finally:
            first.process.thaw()
    stage.cluster.wait_settled()  # the others took it for failed


def test_doctor(stage):
    """glide-rdmactl doctor has a session with each node, and moves a value"""
    wait.until(lambda: {node['state'] for node in status(stage)['nodes']} == {'up'}, lambda: status(stage)['nodes'])
    checks = doctor(stage.daemon, 0, '--quick')
    says(checks['valkey'], 'ok', f'{NODES} nodes')
    says(checks['session'], 'ok', 'all over the cluster')
    says(checks['round_trip'], 'ok', 'path rdma')
    expect.equal([node['carriers'] > 0 for node in status(stage)['nodes']], [True] * NODES)


def test_seeds_by_reload(stage):
    """Seeds that nobody answers at are replaced by a reload; once there is a map, later ones harm nothing"""
    dead = f'127.0.0.1:{free_port()}'
    daemon = stage.other_daemon(config={'valkey.seeds': dead})

    def reload(seeds):
        daemon.sections['valkey']['seeds'] = seeds
        with open(daemon.config_path, 'w', encoding='utf-8') as file:
            file.write(ini(daemon.sections))
        with Session(daemon.admin_path, hello=False) as admin:
            expect.equal(admin.call('reload')['changed'], ['[valkey] seeds'])

    def nodes():
        with Session(daemon.admin_path, hello=False) as admin:
            return [node['address'] for node in admin.call('status')['nodes'] if node['state'] == 'up']

    memory = stage.memory(SIZE)
    with stage.session(daemon) as session:
        region = session.register(memory)
        expect.equal(nodes(), [])
        reload(stage.cluster.seeds)
        wait.until(lambda: len(nodes()) == NODES, 'the nodes of the cluster')
        for number in range(20):
            round_trip(session, memory, region, f'reload:{number}', noise(1000))
        expect.holds(dead not in nodes(), nodes())
        reload(dead)
        for number in range(20):
            round_trip(session, memory, region, f'reload:{number}', noise(1000))
        expect.equal(len(nodes()), NODES)


tap.run(globals(), Stage(cluster={'primaries': NODES}))
