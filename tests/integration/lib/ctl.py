"""glide-rdmactl as a shell runs it: what it prints, and its exit status."""
import json
import os
import select
import socket
import subprocess
import threading

from lib import expect, paths, tap

# client/ctl/exit.h
FALSE, USAGE, DATA, INPUT, UNAVAILABLE, INTERNAL, SYSTEM, CREATE, IO, AGAIN, PROTOCOL, NO_ACCESS = \
    1, 64, 65, 66, 69, 70, 71, 73, 74, 75, 76, 77


def ctl():
    return paths.built('GRD_CTL')


def run(stage, *words, data=None, daemon=None, user=None, folder=None, **environment):
    """Stdout and stderr of the result are bytes."""
    environment.setdefault('GLIDE_RDMAD_SOCKET', (daemon or stage.daemon).path)
    return subprocess.run([ctl(), *words], input=b'' if data is None else data, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100, env=paths.environment(**environment), cwd=folder,
                          **({'user': user, 'group': user, 'extra_groups': []} if user is not None else {}))


def good(stage, *words, **arguments):
    """The output of a run that succeeds and says nothing on standard error."""
    done = run(stage, *words, **arguments)
    expect.equal((done.returncode, done.stderr), (0, b''), ' '.join(map(str, words)))
    return done.stdout


def bad(stage, status, *words, says=(), **arguments):
    """A run that fails with this status, prints nothing, and says why in one line."""
    done = run(stage, *words, **arguments)
    expect.equal((done.returncode, done.stdout), (status, b''), f'{words}: {done.stderr}')
    text = done.stderr.decode()
    for word in says:
        expect.holds(word in text, f'{word!r} is missing in {text!r}')
    expect.holds(text.endswith('\n') and text.count('\n') == 1, f'not one line: {text!r}')
    return text


def admin(stage, *words, **arguments):
    return good(stage, '--admin-socket', stage.daemon.admin_path, *words, **arguments)


def write(stage, data, name='input'):
    path = os.path.join(stage.new_folder(), name)
    with open(path, 'wb') as file:
        file.write(data)
    return path


def write_file(path, data, mode):
    with open(path, 'wb') as file:
        file.write(data)
    os.chmod(path, mode)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def need_root():
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')


class Relay:
    """Passes one session's packets on, and does something before it passes a certain request."""

    def __init__(self, stage, path):
        self.path = path
        self.target = stage.daemon.path
        self.before = {}
        self.seen = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(1)

    def start(self):
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        client, _ = self.listener.accept()
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.connect(self.target)
            while True:
                for ready in select.select([client, daemon], [], [])[0]:
                    packet, fds, _, _ = socket.recv_fds(ready, 65536, 8)
                    if not packet:
                        return
                    if ready is client:
                        self._look(packet)
                    socket.send_fds(daemon if ready is client else client, [packet], fds)
                    for fd in fds:
                        os.close(fd)

    def _look(self, packet):
        method = json.loads(packet)['method']
        self.seen.append(method)
        action = self.before.pop(method, None)
        if action is not None:
            action()
