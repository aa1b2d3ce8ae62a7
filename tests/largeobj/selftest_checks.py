"""Checks before a transfer: their texts and their order."""

from selftest_harness import (
    Error, NO_SESSION, TRIPLES, WRITE_FAILED, rdma_set, rdma_get, same, fails, switched, test,
)


@test
def arity(w):
    for args in [('RDMA_HELLO',), ('RDMA_HELLO', 'a', 'b'), ('RDMA_GET', 'k', 1, 2), ('RDMA_SET', 'k', 1, 2, 3),
                 ('TCP_SET', 'k'), ('TCP_SET', 'k', 'v', 'x'), ('TCP_GET', 'k', 'x'), ('INFO', 'k', 'LEN', 'CRC')]:
        fails(f"ERR wrong number of arguments for 'BLOB.{args[0]}' command", w.admin, 'BLOB.' + args[0], *args[1:])


@test
def hello_checks(w):
    c = w.server.conn()
    for bad in ['0', '0g', 'zz' * 16, '0x' + '00' * 15]:
        fails('ERR invalid rdma address hex', c, 'BLOB.RDMA_HELLO', bad)
    fails('ERR rdma address must not be empty', c, 'BLOB.RDMA_HELLO', '')
    for bad in ['00', '00' * 16, '02' * 17, w.target.address + '00', '0a00' + '00' * 26, 'ff' * 64, 'ff' * 5000]:
        fails('ERR session create: service 0: Invalid argument', c, 'BLOB.RDMA_HELLO', bad)
    same(len(c.call('BLOB.RDMA_HELLO', w.target.address.upper())), 2)


@test
def addresses_where_nobody_is(w):
    w.admin.call('BLOB.TCP_SET', 'k', b'x')
    with switched(w.admin, eagain_timeout_ms=100):
        for address in ['00' * 4, '00017f000001', '0001ffffffff', '0001e0000001', 'ffff7f000001']:
            c = w.server.conn()
            try:
                same(len(c.call('BLOB.RDMA_HELLO', '0200' + address.ljust(28, '0'))), 2)
            except Error as e:
                same(str(e), 'ERR session create: service 0: Invalid argument')
            else:
                fails(WRITE_FAILED, c, 'BLOB.RDMA_GET', 'k', 1, 0, 1)
            c.close()


@test
def order_of_checks_of_get(w):
    c = w.server.conn()
    c.call('BLOB.TCP_SET', 'g', b'x' * 100)
    same(c.call('BLOB.RDMA_GET', 'missing', 'bad', 'bad', 'bad', 'bad'), None)
    fails(TRIPLES, c, 'BLOB.RDMA_GET', 'g', 1, 2, 3, 4)
    for rkey in ['x', '-1', ' 1', '1 ', '0x1', '', '+', '++1', '18446744073709551616', '1.0']:
        fails('ERR invalid rkey', c, 'BLOB.RDMA_GET', 'g', rkey, 'x', 'x')
    fails('ERR invalid memory address', c, 'BLOB.RDMA_GET', 'g', 1, 'x', 'x')
    for length in ['x', '0', '-5']:
        fails('ERR invalid memory address len', c, 'BLOB.RDMA_GET', 'g', 1, 2, length)
    fails('ERR client memory address length 99 smaller than object length 100', c,
          'BLOB.RDMA_GET', 'g', 1, 2, 50, 1, 2, 49)
    fails(NO_SESSION, c, 'BLOB.RDMA_GET', 'g', '+1', 0, 100)
    fails(NO_SESSION, c, 'BLOB.RDMA_GET', 'g', 2**64 - 1, 2**64 - 1, 2**64 - 1, 1, 1, 2**64 - 1)


@test
def order_of_checks_of_set(w):
    c = w.server.conn()
    for length in ['x', '-1', '']:
        fails('ERR invalid len', c, 'BLOB.RDMA_SET', 'k', length, 1, 2, 3, 4)
    fails(TRIPLES, c, 'BLOB.RDMA_SET', 'k', 5, 1, 2, 3, 4)
    fails('ERR invalid rkey', c, 'BLOB.RDMA_SET', 'k', 5, 'x', 2, 0)
    fails('ERR invalid memory address', c, 'BLOB.RDMA_SET', 'k', 5, 1, 'x', 0)
    fails('ERR invalid memory address len', c, 'BLOB.RDMA_SET', 'k', 0, 1, 2, 0)
    fails('ERR client memory address length 4 smaller than object length 5', c, 'BLOB.RDMA_SET', 'k', 5, 1, 2, 4)
    fails(NO_SESSION, c, 'BLOB.RDMA_SET', 'k', 0, 1, 2, 4)
    c = w.conn()
    fails('ERR object length must be > 0', c, 'BLOB.RDMA_SET', 'k', 0, 1, 2, 4)
    fails('ERR object length must be > 0', c, 'BLOB.TCP_SET', 'k', '')
    with switched(w.admin, max_object_size=1000):
        fails('ERR max object size exceeded', c, 'BLOB.RDMA_SET', 'k', 1001, 1, 2, 1001)
        fails('ERR max object size exceeded', c, 'BLOB.TCP_SET', 'k', b'x' * 1001)
        same(c.call('BLOB.TCP_SET', 'k', b'x' * 1000), 'OK')


@test
def no_blocking_where_it_is_not_allowed(w):
    c = w.conn()
    c.call('BLOB.TCP_SET', 'm', b'x' * 100)
    w.target.mem[:100] = bytes(100)
    before = w.admin.stats()
    c.call('MULTI')
    c.call('BLOB.RDMA_GET', 'm', *w.target.at(0, 100))
    c.call('BLOB.RDMA_SET', 'm2', 100, *w.target.at(0, 100))
    c.call('BLOB.TCP_SET', 'm2', b'x')
    c.call('BLOB.RDMA_GET', 'missing', *w.target.at(0, 100))
    replies = c.call('EXEC')
    same([str(r) for r in replies[:3]], ['ERR Blocking module command called from transaction'] * 3)
    same(replies[3], None)
    script = "return server.pcall('BLOB.RDMA_GET', KEYS[1], ARGV[1], ARGV[2], ARGV[3])"
    fails('ERR Blocking module command called from Lua script', c, 'EVAL', script, 1, 'm', *w.target.at(0, 100))
    same(w.target.mem[:100], bytes(100))
    same(w.admin.stats()['endpoint0_operations'], before['endpoint0_operations'])
    same(c.call('EXISTS', 'm2'), 0)


@test
def core_refuses_before_the_module(w):
    c = w.conn()
    c.call('BLOB.TCP_SET', 'm', b'x' * 100)
    c.call('CONFIG', 'SET', 'maxmemory', 1)
    try:
        fails("OOM command not allowed when used memory > 'maxmemory'.", c,
              'BLOB.RDMA_SET', 'm', 100, *w.target.at(0, 100))
        rdma_get(c, 'm', w.target.at(0, 100))
        same(c.read()[0], 100)
    finally:
        c.call('CONFIG', 'SET', 'maxmemory', 0)
    c.call('ACL', 'SETUSER', 'reader', 'on', 'nopass', '~*', '+@largeobj', '-@write')
    d = w.server.conn()
    d.call('AUTH', 'reader', 'x')
    same(len(d.call('BLOB.RDMA_HELLO', w.target.address)), 2)
    rdma_get(d, 'm', w.target.at(0, 100))
    same(d.read()[0], 100)
    try:
        rdma_set(d, 'm', 100, w.target.at(0, 100))
        d.read()
        raise AssertionError('write was allowed')
    except Error as e:
        assert str(e).startswith('NOPERM'), e
