"""The real daemon, with a configuration, sockets and folder of its own."""
import os
import socket
import sys

from lib import paths, wait
from lib.process import Process

READY_WITHIN = 60

_started = []  # every process of a daemon, until blocked_loops() has looked at its log


def ini(sections):
    lines = []
    for section, keys in sections.items():
        lines.append(f'[{section}]')
        lines += [f'{name} = {value}' for name, value in keys.items()]
    return '\n'.join(lines) + '\n'


def blocked_loops():
    """What daemons have logged since the last call about turns of their loop that waited or took too long.

    A stop by freeze() in the middle of a turn counts as a wait, and is left out.
    """
    found = []
    for process in list(_started):
        lines = [line for line in process.log().splitlines() if 'loop blocked' in line]
        new, process.loops_told = lines[process.loops_told:], len(lines)
        for line in new:
            if process.freezes > 0 and 'waited 1 times' in line:
                process.freezes -= 1
            else:
                found.append(line)
        if not process.alive():
            _started.remove(process)
    return found


# What systemd does: the sockets from descriptor 3 on, then the program in this very process.
ACTIVATE = '''
import fcntl, os, sys
fds = [fcntl.fcntl(int(word), fcntl.F_DUPFD_CLOEXEC, 100) for word in sys.argv[1].split(',')]
os.closerange(3, 100)
for number, fd in enumerate(fds, 3):
    os.dup2(fd, number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
'''


class Daemon:
    """`config`: {'section.key': value} on top of what a test needs in any case. `passed`: names of client sockets, and
    "admin", that are made here and passed, as systemd does; then the daemon makes none."""

    def __init__(self, folder, valkey_address, config=None, uid=None, environment=None, limits=(), start=True,
                 passed=()):
        self.folder = os.path.join(folder, 'daemon')
        os.makedirs(self.folder, exist_ok=True)
        os.chmod(self.folder, 0o777)
        self.path = os.path.join(self.folder, 'client.sock')
        self.admin_path = os.path.join(self.folder, 'admin.sock')
        self.config_path = os.path.join(self.folder, 'glide-rdmad.conf')
        # Not a file of a disk: writing to one may wait, and the loop logs.
        self.log_path = f'/proc/{os.getpid()}/fd/{os.memfd_create("daemon.log")}'
        self.uid = uid
        self.environment = dict(environment or {})
        self.limits = limits
        self.passed = passed
        self.process = None
        self.notify_path = os.path.join(self.folder, 'notify.sock')
        self.notify = None
        self.messages = []
        self.sections = {
            'daemon': {'log_level': 'debug'},
            'valkey': {'address': valkey_address} if valkey_address else {},
            'fabric': {'provider': 'tcp'},
            'memory': {},
            'limits': {},
            'socket main': {'path': self.path, 'mode': '0666'},
            'admin': {'path': self.admin_path},
        }
        for name, value in (config or {}).items():
            section, key = name.split('.')
            self.sections.setdefault(section, {})[key] = value
        if start:
            self.start()

    def start(self):
        """Starts it and waits for READY=1."""
        self.begin()
        wait.until(lambda: self.notified('READY=1') or not self.process.alive(),
                   lambda: 'READY=1 of the daemon\n' + '\n'.join(self.process.log_tail()), READY_WITHIN)
        if not self.process.alive():
            raise AssertionError(f'the daemon ended with {self.process.status()}:\n'
                                 + '\n'.join(self.process.log_tail()))

    def begin(self):
        """Starts it without waiting. A FIFO in place of its configuration is the test's to write to."""
        if not os.path.exists(self.config_path) or os.path.isfile(self.config_path):
            with open(self.config_path, 'w', encoding='utf-8') as file:
                file.write(ini(self.sections))
        self._listen()
        argv = [paths.daemon(), '--config', self.config_path]
        sockets = [self._client_socket(name) for name in self.passed]
        if sockets:
            numbers = ','.join(str(each.fileno()) for each in sockets)
            argv = [sys.executable, '-c', ACTIVATE, numbers, ':'.join(self.passed), *argv]
        before = self.process
        self.process = Process('glide-rdmad', argv, self.log_path, uid=self.uid, limits=self.limits,
                               pass_fds=[each.fileno() for each in sockets], NOTIFY_SOCKET=self.notify_path,
                               **{'GLIDE_RDMAD_TEST_LOOP': '1', **self.environment})
        for each in sockets:
            each.close()
        if before is not None:  # its log goes on
            self.process.loops_told, self.process.freezes = before.loops_told, before.freezes
            if before in _started:
                _started.remove(before)
        _started.append(self.process)

    def _client_socket(self, name):
        """One that a socket unit would have made."""
        path = self.sections['admin' if name == 'admin' else f'socket {name}']['path']
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.bind(path)
        made.listen()
        os.chmod(path, 0o666)
        return made

    def _listen(self):
        """A socket for the notifications to a service manager."""
        if self.notify is not None:
            self.notify.close()
            os.unlink(self.notify_path)
        self.messages = []
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.setblocking(False)
        self.notify.bind(self.notify_path)
        os.chmod(self.notify_path, 0o777)

    def notified(self, state):
        """Has it told the service manager this, such as READY=1?"""
        try:
            while True:
                self.messages.append(self.notify.recv(4096).decode(errors='replace'))
        except BlockingIOError:
            return any(state in message.splitlines() for message in self.messages)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.alive()

    def stop(self, seconds=60):
        """SIGTERM; returns the exit status."""
        return self.process.terminate(seconds)

    def kill(self):
        return self.process.kill()

    def restart(self):
        if self.alive():
            self.stop()
        self.start()

    # --- what the kernel says about the process

    def fds(self):
        links = []
        for number in os.listdir(f'/proc/{self.pid}/fd'):
            try:
                links.append(os.readlink(f'/proc/{self.pid}/fd/{number}'))
            except FileNotFoundError:
                pass  # closed meanwhile
        return sorted(links)

    def fd_count(self):
        return len(self.fds())

    def memfd_fds(self, name):
        return sum(f'/memfd:{name}' in link for link in self.fds())

    def mappings(self, name):
        """Mappings of the memory file of that name."""
        with open(f'/proc/{self.pid}/maps', encoding='utf-8', errors='replace') as file:
            return [line for line in file if f'/memfd:{name}' in line]

    def mapping_flags(self, name):
        """VmFlags of each mapping of the memory file of that name."""
        result = []
        inside = False
        with open(f'/proc/{self.pid}/smaps', encoding='utf-8', errors='replace') as file:
            for line in file:
                if line.startswith('VmFlags:'):
                    if inside:
                        result.append(line.split()[1:])
                elif '-' in line.split(' ', 1)[0] and ':' not in line.split(' ', 1)[0]:
                    inside = f'/memfd:{name}' in line
        return result

    def holds_nothing_of(self, name):
        """True when neither a mapping nor a descriptor of that memory file is left; also when the daemon is gone."""
        try:
            return not self.mappings(name) and self.memfd_fds(name) == 0
        except (FileNotFoundError, ProcessLookupError):
            return True

    def voluntary_switches(self):
        """Voluntary context switches of every thread: {thread id: number}."""
        result = {}
        for task in os.listdir(f'/proc/{self.pid}/task'):
            try:
                with open(f'/proc/{self.pid}/task/{task}/status', encoding='ascii', errors='replace') as file:
                    lines = file.readlines()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            for line in lines:
                if line.startswith('voluntary_ctxt_switches'):
                    result[task] = int(line.split()[1])
        return result

    def bytes_unsent(self):
        """Bytes in the send queues of its TCP sockets: more than 0 for long means that the receiver has stopped."""
        inodes = {link[8:-1] for link in self.fds() if link.startswith('socket:[')}
        total = 0
        for table in ('tcp', 'tcp6'):
            with open(f'/proc/{self.pid}/net/{table}', encoding='ascii') as file:
                for line in list(file)[1:]:
                    words = line.split()
                    if words[9] in inodes:
                        total += int(words[4].split(':')[0], 16)
        return total
