"""The soft-RoCE devices of the guest (scripts/lib/guest-network): the daemon on one or two, the server on another."""
import contextlib
import os

from lib import tap, wait
from lib.stage import Stage

DAEMON = '10.78.0.1'  # rxe0
SERVER = '10.78.1.1'  # rxe1
SLOW = 240            # seconds for a test, where the processor is emulated
DEVICES = '/dev/infiniband'


class Rxe(Stage):
    """A Stage on provider verbs; on rxe0 unless daemon_config names interfaces. Further options as there."""

    def __init__(self, module_options=None, daemon_config=None, **arguments):
        # A queue pair is connected with the first operation, which takes the emulated machine a while.
        module = {'fabric-provider': 'verbs', 'fabric-interfaces': SERVER, 'eagain-timeout-ms': 20000,
                  'op-timeout-ms': 60000, **(module_options or {})}
        config = {'fabric.provider': 'verbs', **(daemon_config or {})}
        if 'fabric.interfaces' not in config:
            config.setdefault('fabric.bind', DAEMON)
        super().__init__(module_options=module, daemon_config=config, **arguments)


def here():
    """Is this the guest? Otherwise says that the tests are skipped."""
    if os.environ.get('GRD_RXE') == 'yes':
        return True
    print('1..0 # SKIP needs soft-RoCE: scripts/test --rxe')
    return False


def run(names, stage):
    """As tap.run, in the guest; a skip elsewhere."""
    if not here():
        return
    for name, value in names.items():
        if name.startswith('test_') and callable(value) and not hasattr(value, 'seconds'):
            tap.slow(SLOW)(value)
    tap.run(names, stage)


@contextlib.contextmanager
def devices_closed():
    """Nobody but root gets to the device files."""
    os.chmod(DEVICES, 0o700)
    try:
        yield
    finally:
        os.chmod(DEVICES, 0o755)


def packets(devices=('rxe0', 'rxe1')):
    """Packets that each device has sent. The kernel may tell a number that it has looked up 10 ms ago."""
    result = []
    for device in devices:
        with open(f'/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts', encoding='ascii') as file:
            result.append(int(file.read()))
    return result


def expect_packets(before, devices=('rxe0', 'rxe1')):
    """Each device has sent packets since packets() told `before`."""
    wait.until(lambda: all(now > then for now, then in zip(packets(devices), before)),
               lambda: f'packets of each of {devices}: {before} before, {packets(devices)} now')


def pinned(pid):
    """VmPin of a process in bytes."""
    with open(f'/proc/{pid}/status', encoding='ascii', errors='replace') as file:
        for line in file:
            if line.startswith('VmPin:'):
                return int(line.split()[1]) * 1024
    raise AssertionError('the kernel says no VmPin')
