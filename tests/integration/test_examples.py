"""The examples of glide-rdmad-client(3) work."""
import os
import subprocess
import sys

from lib import expect, paths, tap
from lib.huge_pages import HUGE, Pages
from lib.stage import Stage

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'client', 'examples')


def run(stage, command, interpreter=False):
    environment = paths.environment(interpreter=interpreter, GLIDE_RDMAD_SOCKET=stage.daemon.path,
                                    GLIDE_RDMAD_LIBRARY=paths.client_library())
    done = subprocess.run(command, env=environment, text=True, timeout=100, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 77:
        raise tap.Skip(done.stderr.strip())
    expect.equal(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


def example(name):
    return os.path.join(paths.built('GRD_EXAMPLES'), 'example-' + name)


def test_allocator(stage):
    """allocator: blocks of a region"""
    expect.equal(run(stage, [example('allocator')]), 'in place, sent from where it lies\n')


def test_event_loop(stage):
    """event_loop: a queue in a poll() loop, and a transfer taken back"""
    lines = run(stage, [example('event_loop')]).splitlines()
    expect.holds(lines[0].startswith('taken back: '), lines)
    expect.equal(lines[1], '0 failed')
    expect.equal(stage.valkey.value('example:loop:199'), b'l' * 4096)


def test_huge_pages(stage):
    """huge_pages: a region of MFD_HUGETLB memory"""
    with Pages(1):
        expect.equal(run(stage, [example('huge_pages')]), f'stored {HUGE} bytes from huge pages\n')


def test_refused(stage):
    """refused: a file of /dev/shm is refused with a reason, ordinary memory is copied"""
    output = run(stage, [example('refused')])
    expect.holds(output.startswith('bad_fd: '), output)
    expect.equal(stage.valkey.value('example:copied'), b'from ordinary memory')


def test_numpy(stage):
    """numpy_region: a NumPy array over a region"""
    output = run(stage, [sys.executable, '-B', os.path.join(SOURCES, 'numpy_region.py')], interpreter=True)
    expect.equal(output, f'{1 << 20} bytes, the same\n')


def test_cuda(stage):
    """cuda_host_register: a region registered with CUDA as well"""
    program = example('cuda_host_register')
    if not os.path.exists(program):
        raise tap.Skip('not built: there was no cuda_runtime.h')
    run(stage, [program])


tap.run(globals(), Stage())
