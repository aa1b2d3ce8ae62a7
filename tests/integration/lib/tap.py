"""Runs the test_* functions of a file in order and prints TAP.

The docstring's first line names the test. A test that cannot run here raises Skip (or paths.Missing), with the reason.
Each test gets a Stage, shared by the whole file.
"""
import inspect
import os
import re
import signal
import sys
import traceback

from lib import process, wait
from lib.daemon import blocked_loops
from lib.paths import Missing

TEST_SECONDS = 150
# Turns of a daemon's loop that may wait in a test: on a busy host a thread can lose its processor while it holds the
# lock of malloc that the loop needs next.
WAITS = 2
# Measured: 3 ms at most, 5 ms with a sanitizer.
TURN_CPU_US = 20_000 * wait.SLOWNESS * (5 if 'GRD_PRELOAD' in os.environ else 1)


class Skip(Exception):
    pass


class _TooLong(BaseException):
    """Not an Exception: a test's own `except` must not swallow it."""


def slow(seconds):
    """Gives one test more time than others have."""
    def mark(function):
        function.seconds = max(seconds, TEST_SECONDS)
        return function
    return mark


def _name(function):
    text = inspect.getdoc(function)
    return text.splitlines()[0].rstrip('.').replace('#', '') if text else function.__name__[5:].replace('_', ' ')


def _diagnose(text):
    for line in text.splitlines():
        print(f'# {line}')


def _ring(*_):
    raise _TooLong


def _run(function, stage):
    """('ok' | 'not ok' | 'skip', text)"""
    seconds = getattr(function, 'seconds', TEST_SECONDS)
    signal.alarm(seconds)
    try:
        function(stage)
        stage.tidy()
        expect_no_blocked_loop(getattr(function, 'waits', WAITS))
        return 'ok', ''
    except (Skip, Missing) as skip:
        return 'skip', str(skip)
    except _TooLong:
        return 'not ok', f'took more than {seconds} s\n{traceback.format_exc()}'
    except Exception:
        return 'not ok', traceback.format_exc()
    finally:
        signal.alarm(0)


def waits(number):
    """Allows one test more turns of the loop that waited for a lock of malloc."""
    def mark(function):
        function.waits = number
        return function
    return mark


def expect_no_blocked_loop(allowed):
    """Rule 7 of docs/architecture.md holds in every test."""
    lines = blocked_loops()
    worked = [line for line in lines if int(re.search(r'used (\d+) us', line).group(1)) > TURN_CPU_US]
    waited = [line for line in lines if 'waited 0 times' not in line]
    if worked or len(waited) > allowed:
        raise AssertionError('the loop of a daemon must never wait:\n' + '\n'.join(lines))


def the_daemon_ends_in_order(stage):
    """The daemon of all these tests ends in order"""
    stage.finish()


def run(names, stage):
    """names: globals() of the test file. Words on the command line choose tests by a part of their function's name."""
    signal.signal(signal.SIGALRM, _ring)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the file's own time is up: put everything away
    wanted = sys.argv[1:]
    tests = [value for name, value in names.items() if name.startswith('test_') and callable(value)
             and (not wanted or any(word in name for word in wanted))]
    if not tests:
        sys.exit(f'no test has any of {wanted} in its name')
    tests.append(the_daemon_ends_in_order)
    print(f'1..{len(tests)}', flush=True)
    failed = 0
    with stage:
        for number, function in enumerate(tests, 1):
            result, text = _run(function, stage)
            if result == 'skip':
                print(f'ok {number} - {_name(function)} # SKIP {text}', flush=True)
                stage.tidy()
                continue
            print(f'{result} {number} - {_name(function)}', flush=True)
            if result == 'not ok':
                failed += 1
                _diagnose(text)
                for name, lines in process.tails():
                    _diagnose(f'--- {name}')
                    _diagnose('\n'.join(lines))
                stage.reset()
    sys.exit(1 if failed else 0)
