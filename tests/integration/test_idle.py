"""Idle means idle: no wake-ups in the daemon, none in the library."""
import os
import urllib.request

from lib import expect, grd, tap, wait
from lib.idle import check_idle
from lib.ports import free_port
from lib.stage import Stage

def test_without_clients(stage):
    """Nobody is connected"""
    stage.daemon.alive()
    check_idle(stage.daemon)


def test_with_idle_lanes(stage):
    """A client with a region is connected, lanes are open"""
    with stage.memory(1 << 20) as memory, stage.session() as session:
        region = session.register(memory)
        numbers = [session.start_set(region, n * 1000, 1000, f'key {n}') for n in range(16)]
        for number in numbers:
            session.wait(number)
        check_idle(stage.daemon)


def test_during_a_transfer(stage):
    """A transfer waits for its answer"""
    with stage.memory(1 << 20) as memory, stage.session() as session:
        region = session.register(memory)
        with stage.valkey.faults(test_never_answer='yes'):
            session.start_set(region, 0, 1000, 'key')
            wait.until(lambda: stage.valkey.info('transfers') == 1, 'the transfer waits')
            check_idle(stage.daemon)


def test_with_a_metrics_listener(stage):
    """Somebody has fetched the metrics over TCP, and is gone"""
    port = free_port()
    daemon = stage.other_daemon(config={'admin.metrics_listen': f'127.0.0.1:{port}'})
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=100) as answer:
        expect.holds(answer.read().endswith(b'# EOF\n'), 'the metrics')
    check_idle(daemon)


def test_library(stage):
    """The library has no thread between calls"""
    before = len(os.listdir('/proc/self/task'))
    with grd.Client(stage.daemon.path) as client:
        region = client.create(64 << 20)
        region.set(b'key', 0, 1000)
        expect.equal(len(os.listdir('/proc/self/task')), before, 'threads')
        region.close()


tap.run(globals(), Stage())
