"""Acting as another user of the host."""
import os

from lib import tap

# Any without an account; not 65534, which the kernel shows for everybody it has no uid for, and the daemon refuses.
NOBODY = 54321


def as_nobody(function):
    """Calls function() as a user without rights; what it opens belongs to that user."""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    os.seteuid(NOBODY)
    try:
        return function()
    finally:
        os.seteuid(0)


def as_user(function, uid, gid=None, groups=()):
    """Calls function() with this uid, primary group (the uid's number without one) and supplementary groups."""
    if os.getuid() != 0:
        raise tap.Skip('needs root to become another user')
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid if gid is None else gid)
    os.seteuid(uid)
    try:
        return function()
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)
