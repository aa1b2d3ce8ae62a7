"""Waiting for a condition with a deadline; never for a fixed time.

A deadline ends what hangs, and is no measure of anything: on a busy host all takes ten times as long.
"""
import os
import time

SLOWNESS = int(os.environ.get('GRD_SLOWNESS', '1'))  # of an emulated processor
PAUSE = 0.002 * SLOWNESS  # seconds between two looks


def until(condition, what, seconds=60.0, pause=PAUSE):
    """Returns the first true value of condition(); fails after `seconds`, or more of them on a slow processor."""
    seconds *= SLOWNESS
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            told = what() if callable(what) else what
            raise AssertionError(f'not within {seconds} s: {told}')
        time.sleep(pause)


def soon(condition, seconds):
    """As until(), but returns a false value instead of failing."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(PAUSE)
