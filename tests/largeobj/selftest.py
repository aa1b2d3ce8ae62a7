#!/usr/bin/env python3
"""Proves the test module on a real valkey-server, in TAP.

    selftest.py LARGEOBJ.SO FABRIC_TARGET [WORD]

With WORD only the tests with it in their names run. VALKEY_SERVER names another server binary.
"""

import atexit
import os
import signal
import sys
import time

sys.dont_write_bytecode = True  # nothing into the source folder

import selftest_path  # noqa: E402,F401
import selftest_checks  # noqa: E402,F401
import selftest_faults  # noqa: E402,F401
from selftest_harness import (  # noqa: E402
    MIB, NO_SESSION, SERVER, TESTS, Conn, Error, Server, Target, World, cleanup, fails, rdma_get, rdma_set, same, test,
    until,
)


# The server as a whole, at the end.

@test
def an_idle_server_uses_no_processor(w):
    # Threads may still be on their way to rest at first; one that spins does so in each second.
    for _ in range(5):
        before = w.server.cpu_ticks()
        time.sleep(1)
        used = w.server.cpu_ticks() - before
        if used <= 4:
            return
    raise AssertionError(used)


@test
def load_time_parameters_do_not_change(w):
    for name, value in [('fabric-interfaces', 'eth0'), ('fabric-provider', 'Emulated'), ('command-names', 'old')]:
        try:
            w.admin.call('CONFIG', 'SET', 'largeobj.' + name, value)
            raise AssertionError(name)
        except Error as e:
            assert "can't set immutable config" in str(e), e


@test
def without_fabric_only_tcp_works(w):
    server = Server(interfaces='no-such-device')
    c = server.conn()
    fails('ERR RDMA provider unavailable on this instance', c, 'BLOB.RDMA_HELLO', w.target.address)
    same(c.call('BLOB.TCP_SET', 'k', b'abc'), 'OK')
    fails(NO_SESSION, c, 'BLOB.RDMA_GET', 'k', 1, 2, 3)
    c.send('SHUTDOWN', 'NOSAVE')
    same(server.process.wait(60), 0)


@test
def interface_names_and_old_command_names(w):
    server = Server('--largeobj.command-names', 'old', interfaces='lo')
    c = server.conn()
    try:
        c.call('BLOB.RDMA_HELLO', w.target.address)
        raise AssertionError('new name is known')
    except Error as e:
        assert str(e).startswith("ERR unknown command 'BLOB.RDMA_HELLO'"), e
    same(len(c.call('BLOB.HELLO', w.target.address)), 1)
    data = w.fill(0, 100000)
    same(c.call('BLOB.SET', 'k', 100000, *w.target.at(0, 100000)), 'OK')
    same(c.call('BLOB.GET', 'k'), data)
    same(c.call('BLOB.SET', 'k2', data), 'OK')
    same(c.call('BLOB.GET', 'k2', *w.target.at(100000, 100000))[0], 100000)
    same(w.target.mem[100000:200000], data)
    c.send('SHUTDOWN', 'NOSAVE')
    same(server.process.wait(60), 0)


@test
def shutdown_in_the_middle_of_a_transfer(w):
    server, target = Server(), Target(64 * MIB)
    c, d, admin = server.conn(target), server.conn(target), server.conn()
    rdma_set(c, 'k', 64 * MIB, target.at(0, 64 * MIB))
    same(c.read(), 'OK')
    os.kill(target.process.pid, signal.SIGSTOP)
    rdma_get(c, 'k', target.at(0, 64 * MIB))
    rdma_set(d, 'k', 64 * MIB, target.at(0, 64 * MIB))
    until(lambda: admin.stats()['transfers'] == 2)
    admin.send('SHUTDOWN', 'NOSAVE')
    same(server.process.wait(60), 0)
    target.close()


@test
def nothing_is_left_and_the_server_ends_cleanly(w):
    until(lambda: w.admin.stats()['rdma_sessions'] == 0)
    stats = w.admin.stats()
    same((stats['in_flight'], stats['transfers']), (0, 0))
    w.admin.call('FLUSHALL')
    until(lambda: w.admin.stats()['num_objects'] == 0)
    w.admin.send('SHUTDOWN', 'NOSAVE')
    same(w.server.process.wait(60), 0)


def main():
    if not SERVER:
        print('1..0 # SKIP no valkey-server')
        return 0
    chosen = [t for t in TESTS if len(sys.argv) < 4 or sys.argv[3] in t.__name__]
    print(f'1..{len(chosen)}', flush=True)
    world = World()
    failed = 0
    for number, function in enumerate(chosen, 1):
        begin = time.monotonic()
        try:
            function(world)
            ok = True
        except Exception as e:
            ok = False
            failed += 1
            tb = e.__traceback__
            while tb.tb_next and 'selftest' in tb.tb_next.tb_frame.f_code.co_filename:
                tb = tb.tb_next
                print(f'# {tb.tb_frame.f_code.co_filename}:{tb.tb_lineno}')
            print(f'# {type(e).__name__}: {e}'.replace('\n', '\n# '))
        for conn in [c for c in Conn.open if c is not world.admin]:
            conn.close()
        name = function.__name__.replace('_', ' ')
        print(f"{'ok' if ok else 'not ok'} {number} - {name} ({time.monotonic() - begin:.2f} s)", flush=True)
        if world.server.process.poll() is not None and not name.startswith('nothing is left'):
            print('Bail out! the server has ended: ' + str(world.server.process.returncode))
            print('# ' + open(world.server.log, errors='replace').read()[-6000:].replace('\n', '\n# '))
            return 1
    return 1 if failed else 0


if __name__ == '__main__':
    atexit.register(cleanup)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
