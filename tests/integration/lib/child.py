"""A function in a child of this process."""
import os
import subprocess

from lib import tap


def in_own_mounts(function):
    """As in_child(), in a mount namespace of its own, where files such as /etc/hosts can be covered by others."""
    if os.getuid() != 0 or not hasattr(os, 'unshare'):
        raise tap.Skip('needs root, and Python 3.12 for os.unshare')
    with open('/proc/self/mountinfo', encoding='ascii') as mounts:
        if any(line.split()[4] in ('/', '/etc') and 'shared:' in line for line in mounts):
            raise tap.Skip('mounts are shared with the host')

    def apart():
        os.unshare(os.CLONE_NEWNS)
        return function()

    return in_child(apart)


def cover(path, by):
    """In a mount namespace of its own: the file `by` is seen in place of `path`."""
    subprocess.run(['mount', '--bind', by, path], check=True)


def in_child(function):
    """Runs function() in a forked child; returns what it returned, or what it raised, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(function())
        except BaseException as error:  # whatever it was, the parent has to hear of it
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text
