"""Assertions that say both values."""
from lib.grd import GrdError
from lib.session import RpcError


def equal(got, wanted, what=''):
    if got != wanted:
        raise AssertionError(f'{what + ": " if what else ""}got {got!r:.300}, wanted {wanted!r:.300}')


def same_bytes(got, wanted, what=''):
    """As equal(), but names the first place that differs."""
    if got == wanted:
        return
    if got is None or len(got) != len(wanted):
        raise AssertionError(f'{what}: got {None if got is None else len(got)} bytes, wanted {len(wanted)}')
    at = next(i for i in range(len(wanted)) if got[i] != wanted[i])
    raise AssertionError(f'{what}: bytes differ from {at} on: got {got[at:at + 8].hex()}, '
                         f'wanted {wanted[at:at + 8].hex()}')


def holds(condition, what):
    if not condition:
        raise AssertionError(what)


def ended_by_deadline(error):
    """The error of a transfer that the server went on refusing: it waited for the next attempt, or the last refusal came
    in the grace that a deadline leaves to an answer on its way, and then that is told."""
    outcome = 'deadline, not sent' if error.name == 'deadline' else 'refused'
    equal((error.data['outcome'], error.data['may_have_run']), (outcome, False), str(error))


class error:
    """with expect.error('overlap') as e: ...   e.raised is the RpcError or GrdError."""

    def __init__(self, *names):
        self.names = names
        self.raised = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        if kind is None:
            raise AssertionError(f'no error came, wanted {" or ".join(self.names)}')
        if not isinstance(value, (RpcError, GrdError)):
            return False
        self.raised = value
        if value.name not in self.names:
            raise AssertionError(f'got the error {value}, wanted {" or ".join(self.names)}')
        return True
