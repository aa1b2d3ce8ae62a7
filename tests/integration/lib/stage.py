"""A folder, a Valkey server and a daemon for the tests of one file, made when first asked for."""
import os
import shutil
import signal
import tempfile

from lib.cluster import Cluster
from lib.daemon import Daemon
from lib.memory import Memory
from lib.session import Session
from lib.valkey import Valkey


class Stage:
    """module_options, valkey_options: of the server; daemon_config: {'section.key': value}; cluster: arguments of
    lib.cluster.Cluster, then the daemon serves that instead of one server.
    """
    server_class = Valkey

    def __init__(self, module=True, valkey_options=None, module_options=None, daemon_config=None, cluster=None):
        self.module = module
        self.cluster_arguments = cluster
        self.valkey_options = valkey_options
        self.module_options = module_options
        self.daemon_config = daemon_config
        self.folder = None
        self._valkey = None
        self._cluster = None
        self._daemon = None
        self._others = []
        self._folders = 0

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix='grd-')
        os.chmod(self.folder, 0o755)
        return self

    def __exit__(self, *_):
        self.reset()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reset(self):
        """Ends the servers; the next test gets fresh ones."""
        for server in [self._daemon, self._valkey, *self._others]:
            if server is not None and server.process is not None:
                server.process.kill()
        if self._cluster is not None:
            self._cluster.stop()
        self._daemon = self._valkey = self._cluster = None
        self._others = []

    def tidy(self):
        """After each test: ends its further servers, daemons first and in order."""
        for server in sorted(self._others, key=lambda server: not isinstance(server, Daemon)):
            self.end(server)

    def finish(self):
        """After all tests: the stage's daemon ends in order, with everything closed."""
        if self._daemon is None:
            return
        if self._daemon.alive():
            self._end_in_order(self._daemon)
        self._expect_no_crash(self._daemon)

    def new_folder(self):
        self._folders += 1
        path = os.path.join(self.folder, str(self._folders))
        os.mkdir(path)
        os.chmod(path, 0o755)
        return path

    @property
    def valkey(self):
        if self._valkey is None:
            self._valkey = self.server_class(self.new_folder(), module=self.module, options=self.valkey_options,
                                             module_options=self.module_options)
        return self._valkey

    @property
    def cluster(self):
        if self._cluster is None:
            self._cluster = Cluster(self.new_folder(), **self.cluster_arguments)
        return self._cluster

    @property
    def daemon(self):
        if self._daemon is not None and not self._daemon.alive():
            self._expect_no_crash(self._daemon)
            self._daemon = None
        if self._daemon is None:
            self._daemon = self.other_daemon(None if self.cluster_arguments is not None else self.valkey, keep=True)
        return self._daemon

    def other_valkey(self, **arguments):
        """A further server, with its own settings; ended after the test."""
        server = self.server_class(self.new_folder(), **arguments)
        self._others.append(server)
        return server

    def other_daemon(self, valkey=None, keep=False, address=None, config=None, **arguments):
        """A further daemon, ended after the test. `config` is put on top of the stage's daemon_config."""
        merged = {**(self.daemon_config or {}), **(config or {})}
        if self.cluster_arguments is not None and valkey is None and address is None:
            merged = {'valkey.seeds': self.cluster.seeds, **merged}
        else:
            address = address or (valkey or self.valkey).address
        daemon = Daemon(self.new_folder(), address, config=merged, **arguments)
        if not keep:
            self._others.append(daemon)
        return daemon

    def end(self, server):
        """Ends a further server early."""
        if server in self._others:
            self._others.remove(server)
        if isinstance(server, Daemon) and server.process is not None and server.alive():
            self._end_in_order(server)
        if server.process is not None:
            server.process.kill()

    def forget(self, daemon):
        """A further daemon that has ended as the test wanted."""
        self._others.remove(daemon)

    @staticmethod
    def _expect_no_crash(daemon):
        """A daemon that has ended was stopped or killed by a test."""
        status = daemon.process.status()
        if status not in (0, -signal.SIGKILL):
            raise AssertionError(f'the daemon ended with {status}:\n' + '\n'.join(daemon.process.log_tail()))

    @staticmethod
    def _end_in_order(daemon):
        """Exit status 0: nothing was left open, and no sanitizer complained."""
        status = daemon.stop()
        if status != 0:
            raise AssertionError(f'the daemon ended with {status}:\n' + '\n'.join(daemon.process.log_tail()))

    def session(self, daemon=None):
        return Session((daemon or self.daemon).path)

    def memory(self, size, fill=None, name=None, **arguments):
        self._folders += 1
        return Memory(name or f'grd-{os.getpid()}-{self._folders}', size, fill=fill, **arguments)
