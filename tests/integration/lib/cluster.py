"""A real Valkey cluster on loopback: primaries, replicas if wanted, all with the test module.

A cluster is made with CLUSTER MEET and ADDSLOTSRANGE, every node knowing every other from the start, and small timeouts:
it is ready about two seconds after its start, most of which the servers wait by themselves.
"""
import os

from lib import wait
from lib.ports import free_port
from lib.resp import ServerError
from lib.valkey import Valkey

SLOTS = 16384
NODE_TIMEOUT_MS = 1000
# The servers give a failover up after five seconds, which a busy host may need: then it is asked for again.
FAILOVER_SECONDS, FAILOVER_ATTEMPTS = 6, 6


class Node(Valkey):
    """A server in cluster mode; `id` is its name in the cluster."""

    def __init__(self, folder, options=None, tls=None, **arguments):
        self.bus = self.tls_port = None
        self.tls = tls
        super().__init__(folder, options={'cluster-enabled': 'yes',
                                          'cluster-node-timeout': NODE_TIMEOUT_MS,
                                          'cluster-replica-validity-factor': 0,
                                          'cluster-require-full-coverage': 'no',
                                          'repl-diskless-sync-delay': 0,
                                          'repl-ping-replica-period': 1, **(options or {}), **(tls or {})}, **arguments)
        self.id = self.call('CLUSTER', 'MYID').decode()

    def _choose_ports(self):
        super()._choose_ports()
        self.bus = self.options['cluster-port'] = free_port()
        if self.tls is not None:
            self.tls_port = self.options['tls-port'] = free_port()

    @property
    def address(self):
        """Where clients of the cluster connect to."""
        return f'127.0.0.1:{self.tls_port or self.port}'

    def cluster(self, *words):
        return self.call('CLUSTER', *words)

    def cluster_info(self, field):
        for line in self.cluster('INFO').decode().splitlines():
            name, _, value = line.partition(':')
            if name == field:
                return value
        return None

    def lines(self):
        """CLUSTER NODES: the words of each line."""
        return [line.split() for line in self.cluster('NODES').decode().splitlines()]

    def view(self):
        """What it knows of the nodes: {id: (flags, ranges of slots)}."""
        return {words[0]: (words[2].split(','), [word for word in words[8:] if not word.startswith('[')])
                for words in self.lines()}

    def epochs(self):
        """The epoch of each node that serves slots, as far as it knows: the highest one's claim to a slot counts."""
        return {words[0]: int(words[6]) for words in self.lines() if any(word[0] != '[' for word in words[8:])}

    def is_primary(self):
        return self.call('ROLE')[0] == b'master'


class Cluster:
    """`primaries` share the slots evenly; each has `replicas` of them. `options` and `module_options`: of each server.
    `tls`: options of the servers' TLS, then each has a port for it and the addresses are those.
    """

    def __init__(self, folder, primaries=3, replicas=0, options=None, module_options=None, tls=None):
        self.nodes = []
        for number in range(primaries * (1 + replicas)):
            path = os.path.join(folder, f'node{number}')
            os.mkdir(path)
            self.nodes.append(Node(path, options=options, tls=tls, module_options=module_options, start=True))
        self.primaries = self.nodes[:primaries]
        self._meet()
        for number, node in enumerate(self.primaries):
            first, end = (SLOTS * number // primaries, SLOTS * (number + 1) // primaries)
            node.cluster('ADDSLOTSRANGE', first, end - 1)
        for number, node in enumerate(self.nodes[primaries:]):
            self._replicate(node, self.primaries[number % primaries])
        self.wait_settled()

    # --- making it

    def _meet(self):
        for number, node in enumerate(self.nodes):
            node.cluster('SET-CONFIG-EPOCH', number + 1)
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.cluster('MEET', '127.0.0.1', other.port, other.bus)
        wait.until(lambda: all(self._knows_all(node) for node in self.nodes), 'the nodes know each other')

    def _knows_all(self, node):
        view = node.view()
        return len(view) == len(self.nodes) and not any('handshake' in flags for flags, _ in view.values())

    @staticmethod
    def _replicate(node, primary):
        node.cluster('REPLICATE', primary.id)

    def wait_settled(self, seconds=60):
        """Until every living node sees every slot served, in the same way, and replicas follow."""
        wait.until(self._settled, self._describe, seconds)

    def alive(self):
        return [node for node in self.nodes if node.process.alive()]

    def _settled(self):
        try:
            following = sum(not node.is_primary() for node in self.alive())
            return all(node.cluster_info('cluster_state') == 'ok' for node in self.alive()) \
                and not self._suspected() \
                and len({self._owners(node) for node in self.alive()}) == 1 \
                and self._epochs_agreed() \
                and all(self._lists(node) == following for node in self.alive()) \
                and all(self._follows(node) for node in self.alive())
        except (OSError, ServerError):
            return False

    def _suspected(self):
        """Living nodes that another takes for failing, as after a stop of a while: replicas would yet replace them."""
        living = {node.id for node in self.alive()}
        return [identity for node in self.alive() for identity, (flags, _) in node.view().items()
                if identity in living and {'fail', 'fail?'} & set(flags)]

    @staticmethod
    def _owners(node):
        return tuple(sorted((identity, tuple(ranges)) for identity, (_, ranges) in node.view().items() if ranges))

    def _epochs_agreed(self):
        """Every living node knows the epoch of every primary, and no two have the same.

        A slot that moves while two have the same can end with nobody: the one that gives it away takes a higher epoch
        to settle the tie, claims the slot with it once more, and only then learns that it is another's. Then each of
        the two names the other as its owner, for good.
        """
        views = {tuple(sorted(node.epochs().items())) for node in self.alive()}
        epochs = [epoch for _, epoch in next(iter(views))]
        return len(views) == 1 and len(set(epochs)) == len(epochs)

    @staticmethod
    def _lists(node):
        """How many replicas it tells clients of."""
        return len({replica[2] for _, _, _, *replicas in node.cluster('SLOTS') for replica in replicas})

    @staticmethod
    def _follows(node):
        role = node.call('ROLE')
        return role[0] == b'master' or role[3] == b'connected'

    def _describe(self):
        return 'the cluster settled: ' + '; '.join(str(node.view()) for node in self.alive())

    # --- looking at it

    @property
    def seeds(self):
        """For [valkey] seeds: two nodes, one of them a replica where there is one."""
        return f'{self.nodes[0].address}, {self.nodes[-1].address}'

    def slot(self, key):
        return self.alive()[0].cluster('KEYSLOT', key)

    def owner(self, key):
        """The primary that serves the key, as the first living node sees it."""
        slot = key if isinstance(key, int) else self.slot(key)
        for first, last, primary, *_ in self.alive()[0].cluster('SLOTS'):
            if first <= slot <= last:
                return self.node(primary[2].decode())
        raise AssertionError(f'nobody serves slot {slot}')

    def told_of(self, key):
        """Whom each living node names as the owner of the key's slot: to tell when something is wrong."""
        slot = self.slot(key)
        return {node.id[:8]: [primary[2].decode()[:8] for first, last, primary, *_ in node.cluster('SLOTS')
                              if first <= slot <= last] for node in self.alive()}

    def node(self, identity):
        return next(node for node in self.nodes if node.id == identity)

    def current_primaries(self):
        """Those who serve slots, as the first living node sees it: in the order of `nodes`."""
        serving = {primary[2].decode() for _, _, primary, *_ in self.alive()[0].cluster('SLOTS')}
        return [node for node in self.nodes if node.id in serving]

    def replica_of(self, primary):
        """One that lives and follows."""
        for node in self.alive():
            words = next((words for words in node.lines() if 'myself' in words[2]), [])
            if words[3] == primary.id:
                return node
        raise AssertionError('no replica')

    def key_of(self, node, prefix='key'):
        """A key that this node serves, other than earlier ones with another prefix."""
        return next(key for key in (f'{prefix}:{number}' for number in range(10_000)) if self.owner(key) is node)

    # --- changing it

    def call_each(self, *words):
        """One command, to every living node."""
        for node in self.alive():
            node.call(*words)

    def migrate(self, key, target):
        """Begins to move the slot of a key, live: the source answers ASK for keys that it does not have."""
        wait.until(self._epochs_agreed, lambda: f'epochs agreed: {[node.epochs() for node in self.alive()]}')
        slot, source = self.slot(key), self.owner(key)
        self._set_slot(target, slot, 'IMPORTING', source.id)
        self._set_slot(source, slot, 'MIGRATING', target.id)
        return slot, source

    @staticmethod
    def _set_slot(node, slot, *words):
        """Replicas acknowledge it first, for which the server gives them two seconds if nothing else is said."""
        node.cluster('SETSLOT', slot, *words, 'TIMEOUT', 20_000)

    def finish_migration(self, slot, target):
        """The slot is the target's: told to the target first, then to the other primaries."""
        self._set_slot(target, slot, 'NODE', target.id)
        for node in self.alive():
            if node is not target and node.is_primary():
                self._set_slot(node, slot, 'NODE', target.id)

    def fail_over(self, primary):
        """CLUSTER FAILOVER: its replica takes its place. Returns the new primary, when all know it."""
        replica, said = self.replica_of(primary), []
        for _ in range(FAILOVER_ATTEMPTS):
            try:
                said.append(replica.cluster('FAILOVER'))
            except ServerError as error:  # it has taken over just now; or lost its primary for a moment, on a busy host
                said.append(str(error))
            if wait.soon(replica.is_primary, FAILOVER_SECONDS):
                self.wait_settled()
                return replica
        raise AssertionError(f'the replica did not take over; CLUSTER FAILOVER was answered {said}')

    def stop(self):
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()

    @property
    def process(self):
        """For the stage, which ends what it started: the first node's."""
        return self.nodes[0].process
