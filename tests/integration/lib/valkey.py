"""A real valkey-server with the test module, on a loopback port and a Unix socket of its own."""
import os
import sys

from lib import paths, wait
from lib.ports import free_port
from lib.process import Process
from lib.resp import Resp, ServerError

STARTED_WITHIN = 60 * wait.SLOWNESS
# What the module waits for a daemon that does not take an operation: its own second was too short for a busy host.
PATIENCE = {'eagain-timeout-ms': 5000}


class Valkey:
    """`options`: configuration names and values; those of the module without their prefix, as module_options."""

    def __init__(self, folder, module=True, options=None, module_options=None, start=True):
        self.folder = os.path.join(folder, 'valkey')
        os.makedirs(self.folder, exist_ok=True)
        self.log_path = os.path.join(self.folder, 'log')
        self.unix_path = os.path.join(self.folder, 'valkey.sock')
        self.module = module
        self.options = dict(options or {})
        self.module_options = {**PATIENCE, **(module_options or {})}
        self.process = None
        self.password = None
        self._choose_ports()
        if start:
            self.start()

    def _choose_ports(self):
        self.port = free_port()

    @property
    def address(self):
        """For the configuration of a daemon."""
        return f'127.0.0.1:{self.port}'

    def _arguments(self):
        argv = [paths.program('valkey-server'), '--port', str(self.port), '--bind', '127.0.0.1', '--save', '',
                '--appendonly', 'no', '--dir', self.folder, '--unixsocket', self.unix_path,
                '--unixsocketperm', '777', '--loglevel', 'warning']
        for name, value in self.options.items():
            argv += [f'--{name}', *(value if isinstance(value, (list, tuple)) else [str(value)])]
        if self.module:
            argv += ['--loadmodule', paths.module()]
            for name, value in self.module_options.items():
                argv += [f'--largeobj.{name}', str(value)]
        return argv

    def start(self):
        """Starts, or starts again on the same port with empty memory."""
        first = self.process is None
        for _ in range(3):
            self.process = Process('valkey-server', self._arguments(), self.log_path)
            if wait.soon(lambda: not self.process.alive() or self._answers(), STARTED_WITHIN) \
                    and self.process.alive():
                return
            if 'Address already in use' not in self.process.log():
                break
            if first:
                self._choose_ports()  # a program that is none of our tests has one of them
        raise AssertionError('valkey-server did not start:\n' + '\n'.join(self.process.log_tail()))

    def _answers(self):
        try:
            with Resp(self.unix_path, timeout=2) as resp:
                return resp.call('PING') == 'PONG'
        except ServerError as error:
            return 'NOAUTH' in str(error)
        except OSError:
            return False

    def stop(self):
        self.process.kill()

    def restart(self):
        self.stop()
        self.start()

    def connect(self):
        resp = Resp(self.unix_path)
        if self.password:
            resp.call('AUTH', self.password)
        return resp

    def call(self, *words):
        with self.connect() as resp:
            return resp.call(*words)

    def set(self, **switches):
        """Sets configuration of the module at run time: set(test_wrong_crc='yes')."""
        with self.connect() as resp:
            for name, value in switches.items():
                resp.call('CONFIG', 'SET', 'largeobj.' + name.replace('_', '-'), value)

    def faults(self, **switches):
        """As set(), for the time of a with block; afterwards each switch has its earlier value."""
        return _Faults(self, switches)

    def info(self, field):
        """A counter of `INFO largeobj`."""
        for line in self.call('INFO', 'largeobj').decode().splitlines():
            name, _, value = line.partition(':')
            if name == 'largeobj_' + field:
                return int(value)
        raise AssertionError(f'INFO largeobj has no {field}')

    def wait_idle(self, seconds=30):
        """Until no transfer runs in the module any more."""
        wait.until(lambda: self.info('transfers') == 0 and self.info('in_flight') == 0,
                   lambda: f'transfers of the module ended ({self.info("transfers")} left)', seconds)

    def value(self, key):
        return self.call('BLOB.TCP_GET', key)

    def store(self, key, value):
        return self.call('BLOB.TCP_SET', key, value)

    def crc(self, key):
        return self.call('BLOB.INFO', key, 'CRC')


class _Faults:
    def __init__(self, valkey, switches):
        self.valkey = valkey
        self.switches = {'largeobj.' + name.replace('_', '-'): value for name, value in switches.items()}
        self.before = {}

    def __enter__(self):
        with self.valkey.connect() as resp:
            for name, value in self.switches.items():
                self.before[name] = resp.call('CONFIG', 'GET', name)[1]
                resp.call('CONFIG', 'SET', name, value)
        return self.valkey

    def __exit__(self, *_):
        self.valkey.process.thaw()
        try:
            with self.valkey.connect() as resp:
                for name, value in self.before.items():
                    resp.call('CONFIG', 'SET', name, value)
        except OSError as error:
            print(f'# fault switches were not reset: {error}', file=sys.stderr)
