"""TLS to the Valkey server: values and commands, client certificates, and a clear word for each certificate that is
not good enough."""
import contextlib
import os
import shutil
import socket
import subprocess
import threading

from lib import expect, tap, wait
from lib.certificates import Authority
from lib.child import cover, in_own_mounts
from lib.dump import dump_holds
from lib.idle import check_idle
from lib.memory import noise
from lib.ports import free_port
from lib.session import RpcError
from lib.stage import Stage

SIZES = (1, 4096, 1 << 20, (16 << 20) + 1)


class TlsStage(Stage):
    """Its server has a port for TLS beside the plain one; what is asked of it is set by Secured."""

    @property
    def valkey(self):
        if self._valkey is None:
            self.authority = Authority(self.new_folder())
            self.certificate = self.authority.issue('server')
            self.tls_port = free_port()
            self.valkey_options = {
                'tls-port': self.tls_port, 'tls-cert-file': self.certificate.path,
                'tls-key-file': self.certificate.key, 'tls-ca-cert-file': self.authority.path,
                'tls-auth-clients': 'optional', 'bind': ['127.0.0.1', '-::1']}
        return super().valkey


class Secured:
    """The stage's server with a certificate for `names` and certain dates."""

    def __init__(self, stage, names=None, clients='optional', protocols='TLSv1.2 TLSv1.3', host='127.0.0.1', **dates):
        self.stage = stage
        self.server = stage.valkey
        self.authority, self.port = stage.authority, stage.tls_port
        self.address = f'{host}:{self.port}'
        special = names or dates
        certificate = self.authority.issue('special', names or 'IP:127.0.0.1', **dates) if special \
            else stage.certificate
        self.server.call('CONFIG', 'SET', 'tls-cert-file', certificate.path, 'tls-key-file', certificate.key,
                         'tls-ca-cert-file', self.authority.path, 'tls-auth-clients', clients,
                         'tls-protocols', protocols)

    def daemon(self, ca=None, **config):
        config = {'valkey.tls': 'yes', 'valkey.tls_ca': ca or self.authority.path,
                  **{f'valkey.{name}': value for name, value in config.items()}}
        return self.stage.other_daemon(address=config.pop('valkey.address', self.address), config=config)


def moves(stage, daemon, server=None, sizes=(1000,)):
    """Values go both ways, and commands on keys are answered."""
    with stage.memory(2 * max(sizes), fill=0) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        for size in sizes:
            data = noise(size, seed=size)
            memory[0:size] = data
            session.set(region, 0, size, 'key')
            if server is not None:
                expect.same_bytes(server.value('key'), data, f'{size} bytes at the server')
            session.get(region, max(sizes), size, 'key')
            expect.same_bytes(memory[max(sizes):max(sizes) + size], data, f'{size} bytes come back')
            expect.equal(session.exists('key', 'none'), [True, False])
            expect.equal(session.delete('key'), [True])


def answers(stage, daemon):
    """Commands on keys are answered; for hosts from which the server's fabric cannot be reached."""
    with stage.session(daemon) as session:
        expect.equal(session.exists('none'), [False])


def works_again(stage, daemon):
    """Transfers and commands, after connections were lost."""
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        session.wait_until_sets_work(region)
        wait.until(lambda: 'error' not in session.keys('keys.exists', 'key')[0], 'commands work again', pause=0.05)


def refusal(stage, daemon):
    """What a transfer and a command are answered with, as one text; the log says it, too."""
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        texts = []
        for request in (lambda: session.set(region, 0, 100, 'key'), lambda: session.exists('key')):
            try:
                request()
                raise AssertionError('TLS was accepted')
            except RpcError as error:
                expect.holds(error.name in ('server_down', 'not_usable', 'lost'), error)
                texts.append(error.message)
    return ' '.join(texts) + ' ' + daemon.process.log()


def refused(stage, daemon, *words):
    text = refusal(stage, daemon)
    for word in words:
        expect.holds(word in text, f'"{word}" is not said: {text}')
    stage.end(daemon)


def test_round_trips(stage):
    """Values of 1 byte to 16 MiB and commands on keys; status says tls"""
    it = Secured(stage)
    daemon = it.daemon()
    moves(stage, daemon, it.server, SIZES)
    with stage.session(daemon) as session:
        expect.equal([node['transport'] for node in session.call('status')['nodes']], ['tls'])


def test_tls_1_2(stage):
    """TLS 1.2 is enough"""
    it = Secured(stage, protocols='TLSv1.2')
    moves(stage, it.daemon())


def test_client_certificate(stage):
    """A server that demands a client certificate: with one, without one, with one of another authority"""
    it = Secured(stage, clients='yes')
    own = it.authority.issue('client', None)
    moves(stage, it.daemon(tls_certificate=own.path, tls_key=own.key))
    refused(stage, it.daemon(), 'demands a client certificate', 'tls_certificate')
    stranger = Authority(stage.new_folder(), 'elsewhere').issue('client', None)
    refused(stage, it.daemon(tls_certificate=stranger.path, tls_key=stranger.key), 'TLS with', 'tls_certificate')


def private_number(path):
    """The number that an elliptic key is, most significant byte first."""
    text = subprocess.run(['openssl', 'pkey', '-in', path, '-noout', '-text'], capture_output=True, text=True,
                          check=True).stdout
    digits = text.split('priv:')[1].split('pub:')[0]
    return bytes.fromhex(''.join(digits.replace(':', ' ').split()))[-32:]


@tap.waits(100)  # for the lock of its mappings, which whoever looks at them holds
def test_key_is_in_no_core_file(stage):
    """The number of tls_key is in no memory that a core file holds, in either order, nor is the file's text"""
    if os.environ.get('GRD_PRELOAD'):
        raise tap.Skip('a sanitizer maps terabytes')
    it = Secured(stage, clients='yes')
    own = it.authority.issue('client', None)
    daemon = it.daemon(tls_certificate=own.path, tls_key=own.key)
    moves(stage, daemon)
    number = private_number(own.key)
    with open(own.key, 'rb') as file:
        text = file.read().splitlines()[1]
    expect.holds(dump_holds(daemon.pid, daemon.path.encode()), 'the search finds what is there')
    found = [name for name, secret in (('number', number), ('reversed', number[::-1]), ('text', text))
             if dump_holds(daemon.pid, secret)]
    expect.equal(found, [])


def test_wrong_authority(stage):
    """A certificate that another authority has signed"""
    it = Secured(stage)
    other = Authority(stage.new_folder(), 'other')
    refused(stage, it.daemon(ca=other.path), 'not signed by an authority of [valkey] tls_ca', 'CN = Test authority')


def test_system_authorities(stage):
    """Without tls_ca the system's authorities count, to which ours does not belong"""
    it = Secured(stage)
    refused(stage, it.stage.other_daemon(address=it.address, config={'valkey.tls': 'yes'}), 'tls_ca')


def test_folder_of_authorities(stage):
    """tls_ca may be a folder, with any names in it"""
    it = Secured(stage)
    Authority(it.authority.folder, 'another')
    moves(stage, it.daemon(ca=it.authority.folder))


def test_expired(stage):
    """An expired certificate"""
    it = Secured(stage, ends='20210203040506Z')
    refused(stage, it.daemon(), "'CN = special'", 'has expired on 2021-02-03 04:05:06 UTC')


def test_not_yet_valid(stage):
    """A certificate of the future"""
    it = Secured(stage, begins='20980203040506Z')
    refused(stage, it.daemon(), 'is not valid before 2098-02-03 04:05:06 UTC', 'clocks')


def test_wrong_name(stage):
    """A certificate for another name; right when tls_server_name says so"""
    it = Secured(stage, names='DNS:valkey.example,IP:127.0.0.9')
    refused(stage, it.daemon(), "is not for '127.0.0.1' but for: valkey.example, 127.0.0.9", 'tls_server_name')
    refused(stage, it.daemon(address=f'localhost:{it.port}'), "is not for 'localhost'")
    refused(stage, it.daemon(tls_server_name='example'), "is not for 'example'")
    moves(stage, it.daemon(tls_server_name='valkey.example'))
    moves(stage, it.daemon(tls_server_name='127.0.0.9'))


def test_names(stage):
    """The host of the address is looked for: a name, a name in a wildcard, IPv6"""
    it = Secured(stage, names='DNS:localhost')
    answers(stage, it.daemon(address=f'localhost:{it.port}'))
    it = Secured(stage, names='DNS:*.valkey.example')
    moves(stage, it.daemon(tls_server_name='a.valkey.example'))
    refused(stage, it.daemon(tls_server_name='a.b.valkey.example'), "is not for 'a.b.valkey.example'")
    it = Secured(stage, names='IP:::1', host='[::1]')
    answers(stage, it.daemon())


def test_server_without_tls(stage):
    """tls = yes and a server without it: said after connect_timeout_ms at the latest"""
    it = Secured(stage)
    refused(stage, it.daemon(address=f'127.0.0.1:{it.server.port}', connect_timeout_ms=500), 'speak TLS')


def test_daemon_without_tls(stage):
    """tls = no and a server with it: the answer is taken for what it is"""
    it = Secured(stage)
    refused(stage, stage.other_daemon(address=it.address), 'set [valkey] tls = yes')


def test_old_version_only(stage):
    """A server that offers TLS 1.1 at most"""
    it = Secured(stage, protocols='TLSv1.1')
    refused(stage, it.daemon(), 'no version of TLS from 1.2 on')


def test_hanging_handshake(stage):
    """A server that accepts and says nothing: connect_timeout_ms ends it"""
    it = Secured(stage)
    with socket.create_server(('127.0.0.1', 0)) as listener:
        daemon = it.daemon(address=f'127.0.0.1:{listener.getsockname()[1]}', connect_timeout_ms=200)
        refused(stage, daemon, 'did not finish the handshake', 'connect_timeout_ms = 200 ms')


def test_bad_files(stage):
    """Files that are missing, empty or do not belong together are named with their key"""
    it = Secured(stage)
    client, other = it.authority.issue('client', None), it.authority.issue('other', None)
    empty = os.path.join(stage.new_folder(), 'empty')
    with open(empty, 'w', encoding='ascii'):
        pass
    refused(stage, it.daemon(ca='/nowhere/ca.pem'), 'cannot read tls_ca /nowhere/ca.pem: No such file')
    refused(stage, it.daemon(ca=empty), f'tls_ca {empty} holds no certificate')
    refused(stage, it.daemon(tls_certificate=empty, tls_key=client.key), f'tls_certificate {empty} holds no')
    refused(stage, it.daemon(tls_certificate=client.path, tls_key=other.key), 'no private key in PEM that belongs to')


def two_addresses(hosts):
    """In a mount namespace of its own, where `hosts` is /etc/hosts: the name's first address has no use for TLS."""
    cover('/etc/hosts', hosts)
    with TlsStage() as own:
        authority = Authority(own.new_folder())
        right, wrong = authority.issue('right', 'DNS:two.example'), authority.issue('wrong', 'DNS:other.example')
        port = free_port()

        def server(address, certificate):
            return own.other_valkey(options={
                'bind': address, 'tls-port': port, 'tls-cert-file': certificate.path, 'tls-key-file': certificate.key,
                'tls-ca-cert-file': authority.path, 'tls-auth-clients': 'no'})

        def daemon(**config):
            return own.other_daemon(address=f'two.example:{port}', config={
                'valkey.tls': 'yes', 'valkey.tls_ca': authority.path, **config})

        good = server('127.0.0.2', right)
        bad = server('127.0.0.1', wrong)
        answers(own, daemon())  # a certificate of the wrong name
        own.end(bad)
        with Listener(port) as listener:
            listener.says = b'HTTP/1.1 400 Bad Request\r\n\r\n'  # no TLS at all
            answers(own, daemon())
            listener.says = None  # a peer that takes connections and hangs
            answers(own, daemon(**{'valkey.connect_timeout_ms': 6000}))
            expect.holds(listener.taken >= 2, 'the first address was not tried')
            own.end(good)
            server('127.0.0.2', wrong)
            listener.says = b'HTTP/1.1 400 Bad Request\r\n\r\n'
            refused(own, daemon(), f'TLS with two.example:{port}: 127.0.0.1: the handshake failed',
                    "; 127.0.0.2: ", "is not for 'two.example' but for: other.example")
        own.tidy()


class Listener:
    """At 127.0.0.1: says `says` to each who connects and hangs up, or nothing and holds on."""

    def __init__(self, port):
        self.says = None
        self.taken = 0
        self.held = []
        self.socket = socket.create_server(('127.0.0.1', port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.taken += 1
            if self.says is None:
                self.held.append(connection)
                continue
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(self.says)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def test_two_addresses(stage):
    """A name with two addresses, of which the first has another certificate, no TLS, or hangs: the second serves; with
    two of no use, the reason names each"""
    hosts = os.path.join(stage.new_folder(), 'hosts')
    with open(hosts, 'w', encoding='ascii') as file:
        file.write('127.0.0.1 two.example\n127.0.0.2 two.example\n')
    expect.equal(in_own_mounts(lambda: two_addresses(hosts)), 'None')


def test_renewal(stage):
    """Renewed files count for the next connections, without a restart; those that exist go on"""
    it = Secured(stage, clients='yes')
    ca = shutil.copy(it.authority.path, stage.new_folder())
    client = it.authority.issue('client', None)
    daemon = it.daemon(ca=ca, tls_certificate=client.path, tls_key=client.key, connections=1)
    moves(stage, daemon)
    authority = Authority(stage.new_folder())
    server, renewed = authority.issue('server'), authority.issue('client', None)
    for new, old in ((authority.path, ca), (renewed.path, client.path), (renewed.key, client.key)):
        shutil.copy(new, old)
    moves(stage, daemon)
    it.server.call('CONFIG', 'SET', 'tls-cert-file', server.path, 'tls-key-file', server.key,
                   'tls-ca-cert-file', authority.path)
    it.server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    works_again(stage, daemon)
    moves(stage, daemon)
    expect.holds('the certificate files have changed' in daemon.process.log(), daemon.process.log())


def test_lost_connection(stage):
    """Connections that the server ends are made again"""
    it = Secured(stage)
    daemon = it.daemon()
    moves(stage, daemon)
    it.server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    works_again(stage, daemon)


def test_deadline(stage):
    """A server that stops reading: the transfer ends by its deadline, with its lane destroyed first; then all works"""
    it = Secured(stage)
    daemon = it.daemon(connections=1)
    moves(stage, daemon)
    with stage.memory(4096) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        it.server.process.freeze()
        expect.equal(session.outcome(session.start_set(region, 0, 100, 'key', deadline_ms=200)), 'deadline')
        it.server.process.thaw()
    works_again(stage, daemon)


def test_idle(stage):
    """Idle means idle over TLS, too"""
    it = Secured(stage)
    daemon = it.daemon()
    with stage.memory(1 << 20) as memory, stage.session(daemon) as session:
        region = session.register(memory)
        for number in [session.start_set(region, n * 1000, 1000, f'key {n}') for n in range(16)]:
            session.wait(number)
        check_idle(daemon)


tap.run(globals(), TlsStage())
