"""Is a daemon asleep while it has nothing to do?"""
import os
import time

from lib import expect, tap, wait

IDLE_SECONDS = 3
SPANS = 3  # in one of them nothing may wake up: what was asked for before may be very late on a busy host


def settle(daemon):
    """Until no thread has woken up for a while."""
    def same():
        before = daemon.voluntary_switches()
        time.sleep(1)  # the span that is measured; what was asked for may be late on a busy host
        return daemon.voluntary_switches() == before

    wait.until(same, 'the daemon comes to rest')


def check_idle(daemon):
    if 'tsan' in os.environ.get('GRD_PRELOAD', ''):
        raise tap.Skip('the thread sanitizer has a thread of its own that wakes up')
    settle(daemon)
    for _ in range(SPANS):
        before, after = one_span(daemon)
        if before == after:
            return
    expect.equal(after, before, f'voluntary context switches in {IDLE_SECONDS} s')


def one_span(daemon):
    """Voluntary context switches before and after it."""
    told = told_statuses(daemon)
    before = daemon.voluntary_switches()
    time.sleep(IDLE_SECONDS)  # the span that is measured
    after = daemon.voluntary_switches()
    # A change of a moment ago is told to the service manager three seconds after the last one: the loop's only excuse.
    after[str(daemon.pid)] -= told_statuses(daemon) - told
    return before, after


def told_statuses(daemon):
    daemon.notified('')
    return sum('STATUS=' in message for message in daemon.messages)
