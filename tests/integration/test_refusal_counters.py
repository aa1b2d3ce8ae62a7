"""metrics: each way to be refused moves the counter of its reason, by one, and no other."""
from lib import expect, tap
from lib.memory import MIB
from lib.metrics import look
from lib.session import ANSWER_WITHIN, Session, keys_param
from lib.stage import Stage


class Counters:
    """with counters('no_region'): ... moves that counter by one."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.reason, self.times, self.before = None, 0, {}

    def read(self):
        values = look(self.daemon).samples['glide_rdmad_refused_total']
        return {dict(labels)['reason']: value for labels, value in values.items()}

    def __call__(self, reason, times=1):
        self.reason, self.times = reason, times
        return self

    def __enter__(self):
        self.before = self.read()

    def __exit__(self, kind, *_):
        if kind is None:
            after = self.read()
            moved = {name: after[name] - value for name, value in self.before.items() if after[name] != value}
            expect.equal(moved, {self.reason: self.times})


def refused(counters, reason, call, *arguments, **params):
    with counters(reason), expect.error(reason):
        call(*arguments, **params)


def test_requests(stage):
    """Requests that are wrong, name what is not there, or do not fit"""
    daemon = stage.other_daemon(config={'limits.region_bytes': '2M', 'memory.pinned_limit': '1M'})
    counters = Counters(daemon)
    with stage.memory(MIB) as memory, stage.memory(2 * MIB) as large, stage.memory(4 * MIB) as larger, \
            stage.session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 10, 'key')
        refused(counters, 'method_not_found', client.call, 'nonsense')
        refused(counters, 'invalid_params', client.call, 'region.close')
        refused(counters, 'no_region', client.set, 99, 0, 10, 'key')
        refused(counters, 'out_of_range', client.set, region, MIB - 1, 2, 'key')
        refused(counters, 'over_limit', client.register, larger)
        refused(counters, 'over_budget', client.register, large)
        with counters('invalid_request'):
            client.send_bytes(b'{"jsonrpc":"2.0","id":"text","method":"status"}')
            expect.holds(client.receive(ANSWER_WITHIN), 'no answer')
        with Session(daemon.path, hello=False) as early:
            refused(counters, 'invalid_request', early.call, 'status')


def test_server(stage):
    """What the server answers, and that it does not"""
    server = stage.other_valkey()
    daemon = stage.other_daemon(server)
    counters = Counters(daemon)
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        region = client.register(memory)
        client.set(region, 0, 1000, 'key')
        server.call('LPUSH', 'list', 'x')
        refused(counters, 'wrong_type', client.get, region, 0, 10, 'list')
        with counters('wrong_type', 2):
            entries = client.call('keys.info', keys=keys_param(['list', 'key', 'list']))['keys']
            expect.equal([entry.get('error', {}).get('name') for entry in entries], ['wrong_type', None, 'wrong_type'])
        refused(counters, 'need_larger_window', client.get, region, 0, 10, 'key')
        server.process.freeze()
        with counters('deadline'):
            number = client.start_get(region, 0, 1000, 'key', deadline_ms=50)
            expect.equal(client.outcome(number), 'deadline')
        with counters('cancelled'):
            number = client.start_get(region, 0, 1000, 'key')
            client.call('transfer.cancel', id=number)
            expect.equal(client.outcome(number), 'cancelled')
        server.process.thaw()


def test_policy(stage):
    """What the configuration does not allow: methods, keys one by one, times to live, sizes, quotas"""
    daemon = stage.other_daemon(config={
        'policy.key_prefixes': 'a:', 'policy.max_ttl_ms': 1000, 'policy.max_value_bytes': 100, 'policy.regions': 1,
        'policy.methods': 'transfer.*, keys.exists, keys.expire'})
    counters = Counters(daemon)
    with stage.memory(4096) as memory, stage.session(daemon) as client:
        region = client.register(memory)
        refused(counters, 'over_quota', client.register, memory)
        refused(counters, 'denied', client.call, 'keys.delete', keys=keys_param(['a:']))
        refused(counters, 'denied', client.set, region, 0, 10, 'b:')
        refused(counters, 'denied', client.set, region, 0, 10, 'a:', ttl_ms=2000)
        refused(counters, 'denied', client.call, 'keys.expire', ttl_ms=2000, keys=keys_param(['a:']))
        with counters('denied', 2):
            entries = client.call('keys.exists', keys=keys_param(['b:', 'a:', 'c:']))['keys']
            expect.equal([entry.get('error', {}).get('name') for entry in entries], ['denied', None, 'denied'])
        before = counters.read()
        with expect.error('denied', 'too_large', 'over_limit') as error:
            client.set(region, 0, 101, 'a:')
        name = error.raised.name
        expect.equal(counters.read()[name] - before[name], 1)


def test_draining(stage):
    """A daemon that drains"""
    daemon = stage.other_daemon()
    counters = Counters(daemon)
    with stage.memory(4096) as memory, stage.session(daemon) as client, \
            Session(daemon.admin_path, hello=False) as admin:
        region = client.register(memory)
        admin.call('drain')
        refused(counters, 'draining', client.set, region, 0, 10, 'key')
        refused(counters, 'draining', client.register, memory)
        refused(counters, 'invalid_params', admin.call, 'log.level', level='loud')


tap.run(globals(), Stage())
