"""A stage with a cluster: its servers write one journal of the sets they kept, and speak TLS if wanted."""
import os

from lib.certificates import Authority
from lib.stage import Stage


class ClusterStage(Stage):
    """`tls`: every server has a certificate, and the daemon trusts the authority. The rest: of lib.cluster.Cluster."""

    def __init__(self, tls=False, options=None, module_options=None, daemon_config=None, **cluster):
        super().__init__(cluster=cluster, daemon_config=daemon_config)
        self.tls = tls
        self.options = options
        self.switches = module_options
        self.journal_path = None

    def __enter__(self):
        super().__enter__()
        self.journal_path = os.path.join(self.folder, 'journal')
        self.cluster_arguments = {**self.cluster_arguments, 'options': self.options,
                                  'module_options': {'test-journal': self.journal_path, **(self.switches or {})}}
        if self.tls:
            self._with_certificates()
        return self

    def _with_certificates(self):
        authority = Authority(self.new_folder())
        certificate = authority.issue('server')
        self.cluster_arguments['tls'] = {
            'tls-cert-file': certificate.path, 'tls-key-file': certificate.key, 'tls-ca-cert-file': authority.path,
            'tls-auth-clients': 'no'}
        self.daemon_config = {'valkey.tls': 'yes', 'valkey.tls_ca': authority.path, **(self.daemon_config or {})}

    def journal(self):
        """What the servers kept so far: (node, key, nonce) in the order written."""
        if not os.path.exists(self.journal_path):
            return []
        with open(self.journal_path, encoding='ascii') as file:
            lines = [line.split(' ') for line in file.read().splitlines()]
        return [(node, bytes.fromhex(key).decode(), bytes.fromhex(nonce)) for node, key, nonce in lines]
