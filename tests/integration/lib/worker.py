"""A process of its own that holds a session, like one of the workers of a program that forks."""
import ctypes
import json
import os
import resource
import signal
import socket
import sys

from lib.session import RpcError, Session

PR_SET_PDEATHSIG = 1


class Worker:
    """Forked; connects by itself. What is asked runs there: ask('call', 'status'), ask('register', size=...).

    limits: (RLIMIT_..., value) pairs of the process.
    """

    def __init__(self, daemon, fd, uid=None, limits=()):
        own, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            own.close()
            _run(theirs, daemon.path, fd, uid, limits)
        theirs.close()
        self.pipe = own.makefile('rw', encoding='ascii')
        own.close()

    def begin(self, name, *arguments, **params):
        print(json.dumps([name, arguments, params]), file=self.pipe, flush=True)

    def end(self):
        """The answer to begin()."""
        line = self.pipe.readline()
        assert line, f'worker {self.pid} has ended'
        result, error = json.loads(line)
        if error is not None:
            raise RpcError(error)
        return result

    def ask(self, name, *arguments, **params):
        self.begin(name, *arguments, **params)
        return self.end()

    def kill(self):
        """SIGKILL, wherever it is."""
        if self.pid != 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.pipe.close()


def _run(pipe, path, fd, uid, limits):
    """The worker's whole life."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for which, value in limits:
            resource.setrlimit(which, (value, value))
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        _serve(Session(path), fd, pipe.makefile('rw', encoding='ascii'))
        status = 0
    except Exception as error:
        print(f'# worker {os.getpid()}: {error!r}', file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _serve(session, fd, pipe):
    for line in pipe:
        name, arguments, params = json.loads(line)
        try:
            if name == 'register':
                result = session.call('region.register', fds=[fd], type='memfd', **params)
            else:
                result = getattr(session, name)(*arguments, **params)
            answer = [result, None]
        except RpcError as error:
            answer = [None, {'code': error.code, 'message': error.message, 'data': error.data}]
        print(json.dumps(answer), file=pipe, flush=True)
