"""Child processes that never outlive the test: own process groups, killed at exit, and by the kernel if that fails."""
import atexit
import contextlib
import ctypes
import os
import resource
import signal
import subprocess

from lib import paths, wait

PR_SET_PDEATHSIG = 1
TAIL_LINES = 20

_libc = ctypes.CDLL(None, use_errno=True)
_running = []


class Process:
    """A child with its output in a file. Start children from the main thread only: the kernel ties PDEATHSIG to it."""

    def __init__(self, name, argv, log, uid=None, limits=(), pass_fds=(), interpreter=False, **environment):
        self.name = name
        self.loops_told = 0  # see daemon.blocked_loops
        self.freezes = 0
        self.log_path = log
        self.log_start = os.path.getsize(log) if os.path.exists(log) else 0
        parent = os.getpid()

        def prepare():
            for which, value in limits:
                resource.setrlimit(which, (value, value))
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)  # root's capabilities go with it
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with open(log, 'ab') as output:
            self.child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=prepare, pass_fds=pass_fds, env=paths.environment(interpreter, **environment))
        self.pid = self.child.pid
        _running.append(self)

    def status(self):
        """Exit status (negative: the signal), or None while it runs."""
        return self.child.poll()

    def alive(self):
        return self.status() is None

    def signal(self, number):
        if self.alive():
            os.kill(self.pid, number)

    def wait(self, seconds=60):
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'{self.name} did not end within {seconds} s') from None

    def terminate(self, seconds=60):
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self):
        """Ends the whole group, also when it is stopped."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = self.child.wait()
        if self in _running:
            _running.remove(self)
        return status

    def freeze(self):
        """Stops every thread, and returns when they have stopped."""
        self.freezes += 1
        self.signal(signal.SIGSTOP)
        wait.until(self._all_stopped, f'{self.name} stopped')

    def thaw(self):
        self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        """It stands still for the time of a with block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _all_stopped(self):
        return all(state in 'tTZX' for state in self.thread_states())

    def thread_states(self):
        states = []
        for task in os.listdir(f'/proc/{self.pid}/task'):
            try:
                with open(f'/proc/{self.pid}/task/{task}/stat', encoding='ascii', errors='replace') as file:
                    states.append(file.read().rsplit(')', 1)[1].split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
        return states

    def log(self):
        with open(self.log_path, 'rb') as file:
            file.seek(self.log_start)
            return file.read().decode('utf-8', 'replace')

    def log_tail(self):
        return self.log().splitlines()[-TAIL_LINES:]


def tails():
    """(name, last lines of the log) of every process started and not yet put away."""
    return [(process.name, process.log_tail()) for process in _running]


@atexit.register
def kill_all():
    for process in list(_running):
        process.kill()
