"""What the service manager hears: the watchdog's beat, and a STATUS that changes with the daemon."""
import os
import time

from lib import expect, tap, wait
from lib.stage import Stage

MIB = 1 << 20


def statuses(daemon):
    daemon.notified('')
    return [line[7:] for message in daemon.messages for line in message.splitlines() if line.startswith('STATUS=')]


def beats(daemon):
    daemon.notified('')
    return daemon.messages.count('WATCHDOG=1')


def test_watchdog(stage):
    """WATCHDOG=1 at half of the time; none while the loop hangs, or for another process"""
    daemon = stage.other_daemon(environment={'WATCHDOG_USEC': '400000'})
    begin, before = time.monotonic(), beats(daemon)
    wait.until(lambda: beats(daemon) >= before + 5, 'five beats')
    passed = time.monotonic() - begin
    expect.holds(passed >= 0.6, f'five beats in {passed} s')  # 0.8, less what the first was late
    daemon.process.freeze()
    before = beats(daemon)
    time.sleep(1)  # the span that is measured
    expect.equal(beats(daemon), before)
    daemon.process.thaw()
    other = stage.other_daemon(environment={'WATCHDOG_USEC': '10000', 'WATCHDOG_PID': str(os.getpid())})
    with stage.session(other) as client:
        client.call('status')
    expect.equal(beats(other), 0)


def test_status(stage):
    """STATUS tells nodes, regions and bytes: soon after a change, not more often than every three seconds, and once"""
    daemon = stage.other_daemon()
    wait.until(lambda: statuses(daemon)[-1:] == ['ready: 1 of 1 nodes up, 0 regions, 0 bytes registered'],
               lambda: f'the node is up: {daemon.messages}')
    begin = time.monotonic()
    with stage.memory(MIB) as memory, stage.session(daemon) as client:
        for _ in range(20):
            client.call('region.close', region=client.register(memory))
        client.register(memory)
        wait.until(lambda: statuses(daemon)[-1] == f'ready: 1 of 1 nodes up, 1 regions, {MIB} bytes registered',
                   lambda: f'the region: {daemon.messages}')
        passed = time.monotonic() - begin
        expect.holds(len(statuses(daemon)) <= 4 + passed // 3, f'{daemon.messages} within {passed} s')
    wait.until(lambda: '0 regions, 0 bytes' in statuses(daemon)[-1], 'the region is gone')
    count = len(statuses(daemon))
    with stage.session(daemon) as client:
        client.call('status')  # changes nothing that is told
    time.sleep(3.2)  # the span that is measured
    expect.equal(len(statuses(daemon)), count)


def test_unreachable_server(stage):
    """A daemon without its server is ready, and says what it lacks"""
    daemon = stage.other_daemon(address='127.0.0.1:1')
    wait.until(lambda: any(status.startswith('not usable: 0 of 1 nodes up, 0 regions, 0 bytes registered (')
                           for status in statuses(daemon)), lambda: f'{daemon.messages}')
    expect.holds(daemon.notified('READY=1'), daemon.messages)


tap.run(globals(), Stage())
