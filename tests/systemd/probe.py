"""Inside, in the daemon's place: tries what its sandbox must not allow, and some that it must; prints JSON.

probe.py DEVICE            DEVICE: a device file that everybody may open by its mode
"""
import ctypes
import errno
import json
import mmap
import os
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)

# Those without a function in Python; on machines that have names for the same numbers.
NUMBERS = {
    'x86_64': {'mount': 165, 'unshare': 272, 'ptrace': 101, 'keyctl': 250, 'io_uring_setup': 425},
    'aarch64': {'mount': 40, 'unshare': 97, 'ptrace': 117, 'keyctl': 219, 'io_uring_setup': 425},
}[os.uname().machine]


def outcome(attempt):
    """'done' or the name of the error."""
    try:
        attempt()
        return 'done'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def system_call(name, *arguments):
    if libc.syscall(NUMBERS[name], *(ctypes.c_long(argument) for argument in arguments)) < 0:
        raise OSError(ctypes.get_errno(), name)


def open_it(path, flags=os.O_RDWR):
    os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))


def write(path):
    open_it(path, os.O_WRONLY | os.O_CREAT)
    os.unlink(path)


def make_socket(family, kind=socket.SOCK_DGRAM):
    socket.socket(family, kind).close()


def executable_memory():
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def map_memory_file():
    fd = os.memfd_create('probe', os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    mmap.mmap(fd, 4096)[0] = 1


print(json.dumps({
    'write /etc': outcome(lambda: write('/etc/probe')),
    'write /usr': outcome(lambda: write('/usr/probe')),
    'write /var/lib': outcome(lambda: write('/var/lib/probe')),
    'write /opt': outcome(lambda: write('/opt/probe')),
    'write /run/glide-rdmad': outcome(lambda: write('/run/glide-rdmad/probe')),
    'read /proc/meminfo': outcome(lambda: open_it('/proc/meminfo', os.O_RDONLY)),
    'read /proc/1/status': outcome(lambda: open_it('/proc/1/status', os.O_RDONLY)),
    'list /home': outcome(lambda: os.listdir('/home')),
    'device': outcome(lambda: open_it(sys.argv[1])),
    'null': outcome(lambda: open_it('/dev/null')),
    'AF_PACKET': outcome(lambda: make_socket(socket.AF_PACKET)),
    'AF_NETLINK': outcome(lambda: make_socket(socket.AF_NETLINK, socket.SOCK_RAW)),
    'AF_INET6': outcome(lambda: make_socket(socket.AF_INET6)),
    'executable memory': outcome(executable_memory),
    'memory file': outcome(map_memory_file),
    'io_uring_setup': outcome(lambda: system_call('io_uring_setup', 1, 0)),
    'sched_setaffinity': outcome(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
    'mount': outcome(lambda: system_call('mount', 0, 0, 0, 0, 0)),
    'unshare': outcome(lambda: system_call('unshare', 0x10000000)),
    'setuid': outcome(lambda: os.setuid(os.getuid())),
    'ptrace': outcome(lambda: system_call('ptrace', 0, 0, 0, 0)),
    'keyctl': outcome(lambda: system_call('keyctl', 0, 0, 0)),
    'capabilities': [line.split()[1] for line in open('/proc/self/status', encoding='ascii')
                     if line.startswith(('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'CapAmb'))],
    'no new privileges': [line.split()[1] for line in open('/proc/self/status', encoding='ascii')
                          if line.startswith('NoNewPrivs')],
    'core': open('/proc/self/limits', encoding='ascii').read().split('Max core file size')[1].split()[:2],
}))
