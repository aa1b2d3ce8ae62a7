"""Authorities and certificates, made by the openssl command in a test's folder; elliptic keys, which take no time."""
import os
import subprocess

def _openssl(*words):
    done = subprocess.run(['openssl', *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f'openssl {" ".join(words)}:\n{done.stderr}')


class Certificate:
    """Paths of a certificate and its key."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name + '.pem')
        self.key = os.path.join(folder, name + '.key')


class Authority(Certificate):
    """Signs what it is asked to."""

    def __init__(self, folder, name='authority'):
        super().__init__(folder, name)
        self.folder = folder
        self.name = name
        _openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30',
                 '-subj', f'/CN=Test {name}', '-keyout', self.key, '-out', self.path)

    def issue(self, name, names='IP:127.0.0.1', begins='20200101000000Z', ends='20990101000000Z'):
        """A certificate for subjectAltName `names`; readable for every user of a test."""
        made = Certificate(self.folder, name)
        request = os.path.join(self.folder, name + '.csr')
        extensions = os.path.join(self.folder, name + '.ext')
        with open(extensions, 'w', encoding='ascii') as file:
            file.write(f'subjectAltName = {names}\n' if names else 'basicConstraints = CA:FALSE\n')
        _openssl('req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj',
                 f'/CN={name}', '-keyout', made.key, '-out', request)
        _openssl('x509', '-req', '-in', request, '-CA', self.path, '-CAkey', self.key, '-extfile', extensions,
                 '-not_before', begins, '-not_after', ends, '-out', made.path)
        for path in (made.path, made.key):
            os.chmod(path, 0o644)
        return made
