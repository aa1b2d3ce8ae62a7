"""A valkey-server that listens for RDMA as well, which Debian 13's does not: made by scripts/lib/make-valkey-rdma."""
import os

from lib import paths
from lib.valkey import Valkey

import rxe

FOLDER = '/opt/valkey-rdma'


def program():
    path = os.path.join(FOLDER, 'valkey-server')
    if not os.path.exists(path):
        raise paths.Missing(f'no valkey-server with RDMA in {FOLDER}')
    return path


class RdmaValkey(Valkey):
    """Over RDMA at rxe.SERVER, under the same number as its TCP port; options as those of Valkey."""

    @property
    def address(self):
        return f'rdma://{rxe.SERVER}:{self.port}'

    def _arguments(self):
        # Two settings that the server cannot do without: it crashes without an address, and whoever comes over RDMA
        # from another address than the server's own is not local.
        return [program(), *super()._arguments()[1:], '--loadmodule', os.path.join(FOLDER, 'valkey-rdma.so'),
                '--rdma-bind', rxe.SERVER, '--rdma-port', str(self.port),
                *([] if 'protected-mode' in self.options else ['--protected-mode', 'no'])]

    def clients_over_rdma(self):
        """Those come from the daemon's device; what comes over TCP or the socket does not."""
        return [line for line in self.call('CLIENT', 'LIST').decode().splitlines() if f' addr={rxe.DAEMON}:' in line]


class RespOverRdma(rxe.Rxe):
    """Values and commands over RDMA."""
    server_class = RdmaValkey

    def __init__(self, daemon_config=None, **arguments):
        # An emulated processor needs its time for a connection, and a server that has to reject one ends.
        super().__init__(daemon_config={'valkey.connect_timeout_ms': 30000, **(daemon_config or {})}, **arguments)
