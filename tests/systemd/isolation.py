"""Runs a program so that it can leave nothing behind: its own mount and process namespaces and control groups."""
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GROUP_PREFIX = 'glide-rdmad-systemd-'


def _own_groups():
    """Folders of the control groups this process is in that systemd in a container needs: version 2, name=systemd;
    and that of devices (version 1), without which it cannot restrict them."""
    unified = '/sys/fs/cgroup/unified' if os.path.isdir('/sys/fs/cgroup/unified') else '/sys/fs/cgroup'
    with open('/proc/self/cgroup', encoding='utf-8') as file:
        for line in file:
            number, controllers, path = line.rstrip('\n').split(':', 2)
            if number == '0':
                yield unified + path.rstrip('/')
            elif controllers == 'name=systemd':
                yield '/sys/fs/cgroup/systemd' + path.rstrip('/')
            elif 'devices' in controllers.split(','):
                yield '/sys/fs/cgroup/devices' + path.rstrip('/')


def writable_groups():
    return [folder for folder in _own_groups() if os.access(os.path.join(folder, 'cgroup.procs'), os.W_OK)
            and not os.statvfs(folder).f_flag & os.ST_RDONLY]


def remove_group(folder):
    """Removes a control group and those below it; True when it is gone. The kernel needs a moment after the last
    process."""
    for _ in range(300):
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                pass
        if not os.path.exists(folder):
            return True
        time.sleep(0.1)
    return False


def _remove_stale(parent):
    """Groups of runs that were killed. One with a process in it cannot be removed, a young one may be just starting."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if name.startswith(GROUP_PREFIX) and time.time() - os.stat(folder).st_mtime > 300:
            for path, _, _ in os.walk(folder, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass


def run(command):
    """Runs the command isolated; its exit status, and the control groups that could not be removed."""
    groups = []
    for parent in writable_groups():
        _remove_stale(parent)
        groups.append(os.path.join(parent, f'{GROUP_PREFIX}{os.getpid()}'))
        os.mkdir(groups[-1])

    def enter_groups():
        for folder in groups:
            with open(os.path.join(folder, 'cgroup.procs'), 'w', encoding='ascii') as file:
                file.write('0')

    # If this process is killed, the kernel kills unshare, whose end kills the first process inside and so all others.
    child = subprocess.Popen(
        ['setpriv', '--pdeathsig', 'KILL', 'unshare', '--mount', '--propagation', 'unchanged', '--pid', '--fork',
         '--kill-child', 'sh', os.path.join(HERE, 'isolate.sh'), *command],
        preexec_fn=enter_groups)

    def stop(number, frame):
        child.kill()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    status = child.wait()
    return status, [folder for folder in groups if not remove_group(folder)]


if __name__ == '__main__':
    result, left = run(sys.argv[1:])
    for group in left:
        print(f'left behind: {group}', file=sys.stderr)
    sys.exit(1 if left or result else 0)
