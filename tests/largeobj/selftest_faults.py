"""Failures of the fabric, and every fault switch."""

import os
import signal
import time

from selftest_harness import (
    MIB, Target, WRITE_FAILED, READ_FAILED, rdma_set, rdma_get, same, fails, read_fails, until,
    elapsed, switched, test,
)


# Failures of the fabric.

@test
def a_wrong_key_fails_and_the_next_transfer_works(w):
    c = w.conn()
    data = w.fill(0, MIB)
    rdma_set(c, 'k', MIB, w.target.at(0, MIB))
    same(c.read(), 'OK')
    for _ in range(3):
        fails(WRITE_FAILED, c, 'BLOB.RDMA_GET', 'k', 12345, 0, MIB)
        fails(READ_FAILED, c, 'BLOB.RDMA_SET', 'k', MIB, 12345, 0, MIB)
        fails(WRITE_FAILED, c, 'BLOB.RDMA_GET', 'k', w.target.key, 192 * MIB - 1, MIB)
        rdma_get(c, 'k', w.target.at(MIB, MIB))
        same(c.read()[0], MIB)
        assert w.target.mem[MIB:2 * MIB] == data
    assert c.call('BLOB.TCP_GET', 'k') == data
    stats = w.admin.stats()
    assert stats['rdma_write_errors'] >= 6 and stats['rdma_read_errors'] >= 3 and stats['in_flight'] == 0, stats


@test
def a_dead_peer_fails_in_time_and_holds_up_nobody(w):
    dead = Target(MIB)
    c, d = w.server.conn(dead), w.conn()
    w.admin.call('BLOB.TCP_SET', 'k', b'x' * 4096)
    rdma_get(c, 'k', dead.at(0, 4096))
    same(c.read()[0], 4096)
    dead.process.kill()
    dead.process.wait()
    with switched(w.admin, eagain_timeout_ms=3000, op_timeout_ms=9000):
        rdma_get(c, 'k', dead.at(0, 4096))
        read_fails(WRITE_FAILED, c)
        rdma_get(c, 'k', dead.at(0, 4096))
        for _ in range(5):
            rdma_get(d, 'k', w.target.at(0, 4096))
            same(d.read()[0], 4096)
        same(w.admin.stats()['transfers'], 1)
        read_fails(WRITE_FAILED, c)
        assert elapsed(lambda: fails(WRITE_FAILED, c, 'BLOB.RDMA_GET', 'k', *dead.at(0, 4096))) > 2.9
    dead.close()


@test
def a_stopped_peer_times_out_and_its_memory_is_kept_safe(w):
    target = Target(16 * MIB)
    c, d = w.server.conn(target), w.conn()
    data = w.random.randbytes(16 * MIB)
    w.admin.call('BLOB.TCP_SET', 'slow', data)
    rdma_get(c, 'slow', target.at(0, 16 * MIB))
    same(c.read()[0], 16 * MIB)
    timeouts = w.admin.stats()['rdma_timeouts']
    with switched(w.admin, op_timeout_ms=4000):  # long enough for the peer that lives
        os.kill(target.process.pid, signal.SIGSTOP)
        rdma_get(c, 'slow', target.at(0, 16 * MIB))
        rdma_get(d, 'slow', w.target.at(0, 16 * MIB))
        same(d.read()[0], 16 * MIB)
        read_fails('ERR RDMA timeout', c)
        rdma_set(c, 'slow2', 16 * MIB, target.at(0, 16 * MIB))
        read_fails('ERR RDMA timeout', c)
    w.admin.call('DEL', 'slow')
    assert w.admin.stats()['rdma_timeouts'] > timeouts
    os.kill(target.process.pid, signal.SIGCONT)
    rdma_set(c, 'slow2', 16 * MIB, target.at(0, 16 * MIB))
    same(c.read(), 'OK')
    assert w.admin.call('BLOB.TCP_GET', 'slow2') == data
    until(lambda: w.admin.stats()['in_flight'] == 0)
    target.close()


@test
def client_unblock_with_and_without_a_timeout_callback(w):
    w.admin.call('BLOB.TCP_SET', 'k', b'x' * 4096)
    for callback in ['no', 'yes']:
        with switched(w.admin, test_delay_before_reply_ms=2000, block_timeout_callback=callback):
            c = w.conn()
            client = c.call('CLIENT', 'ID')
            rdma_get(c, 'k', w.target.at(0, 4096))
            until(lambda: w.admin.stats()['transfers'] == 1)
            same(w.admin.call('CLIENT', 'UNBLOCK', client), 1 if callback == 'yes' else 0)
            reply = c.read()
            same(reply if callback == 'yes' else reply[0], None if callback == 'yes' else 4096)
            rdma_get(c, 'k', w.target.at(0, 4096))
            until(lambda: w.admin.stats()['transfers'] > 0)
            if callback == 'yes':
                same(w.admin.call('CLIENT', 'UNBLOCK', client, 'ERROR'), 1)
                read_fails('UNBLOCKED client unblocked via CLIENT UNBLOCK', c)
            else:
                same(c.read()[0], 4096)
            until(lambda: w.admin.stats()['transfers'] == 0)


# Switches.

@test
def switch_delays(w):
    c, d = w.conn(), w.conn()
    w.admin.call('BLOB.TCP_SET', 'k', b'\x11' * 8192)
    w.target.mem[:8192] = bytes(8192)
    with switched(w.admin, test_delay_before_transfer_ms=2000):
        begin = time.monotonic()
        rdma_get(c, 'k', w.target.at(0, 8192))
        same(w.admin.call('PING'), 'PONG')
        w.admin.config(test_delay_before_transfer_ms=0)
        rdma_get(d, 'k', w.target.at(8192, 8192))
        same(d.read()[0], 8192)
        same((w.admin.stats()['transfers'], w.target.mem[0]), (1, 0))
        same(c.read()[0], 8192)
        assert time.monotonic() - begin >= 2
        same(w.target.mem[:8192], b'\x11' * 8192)
    with switched(w.admin, test_delay_between_chunks_ms=2000, chunk_size=4096):
        w.target.mem[:8192] = bytes(8192)
        rdma_get(c, 'k', w.target.at(0, 8192))
        until(lambda: w.target.mem[0] == 0x11)
        same(w.target.mem[4096:8192], bytes(4096))
        assert elapsed(c.read) > 0.1
        same(w.target.mem[:8192], b'\x11' * 8192)
    with switched(w.admin, test_delay_before_reply_ms=2000):
        w.target.mem[:8192] = bytes(8192)
        rdma_get(c, 'k', w.target.at(0, 8192))
        until(lambda: w.target.mem[:8192] == b'\x11' * 8192)
        assert elapsed(c.read) > 0.1


@test
def switch_fail_operation(w):
    c = w.conn()
    data = w.random.randbytes(16384)
    w.admin.call('BLOB.TCP_SET', 'k', data)
    with switched(w.admin, chunk_size=4096):
        w.target.mem[:16384] = bytes(16384)
        w.admin.config(test_fail_operation=2)
        rdma_get(c, 'k', w.target.at(0, 16384))
        read_fails(WRITE_FAILED, c)
        same(w.target.mem[:4096], data[:4096])
        same(w.target.mem[4096:8192], bytes(4096))
        same(w.target.mem[8192:16384], data[8192:])
        rdma_get(c, 'k', w.target.at(0, 16384))
        same(c.read()[0], 16384)
        w.admin.config(test_fail_operation=4)
        rdma_set(c, 'k', 16384, w.target.at(0, 16384))
        read_fails(READ_FAILED, c)
    w.admin.config(test_fail_operation=1)
    rdma_get(c, 'k', w.target.at(0, 16384))
    read_fails(WRITE_FAILED, c)
    same(c.call('BLOB.TCP_GET', 'k'), data)


@test
def switch_error_while_running(w):
    c = w.conn()
    n = 8 * 4096
    data = w.random.randbytes(n)
    w.admin.call('BLOB.TCP_SET', 'late', data)
    with switched(w.admin, chunk_size=4096, test_error_while_running='yes', test_error_after_bytes=4096,
                  test_delay_between_chunks_ms=400):
        w.target.mem[:n] = bytes(n)
        rdma_get(c, 'late', w.target.at(0, n))
        read_fails(WRITE_FAILED, c)
        same(w.target.mem[n - 4096:n], bytes(4096))
        until(lambda: w.target.mem[:n] == data)
        until(lambda: w.admin.stats()['transfers'] == 0)
        rdma_set(c, 'late2', n, w.target.at(0, n))
        read_fails(READ_FAILED, c)
        same(w.admin.stats()['transfers'], 1)
        until(lambda: w.admin.stats()['transfers'] == 0)
        same(c.call('EXISTS', 'late2'), 0)
    data = w.random.randbytes(64 * MIB)
    w.admin.call('BLOB.TCP_SET', 'late', data)
    with switched(w.admin, chunk_size=65536):  # so that both endpoints are connected
        rdma_get(c, 'late', w.target.at(0, 64 * MIB))
        same(c.read()[0], 64 * MIB)
    with switched(w.admin, chunk_size='256mb', test_error_while_running='yes'):
        w.target.mem[:64 * MIB] = bytes(64 * MIB)
        os.kill(w.target.process.pid, signal.SIGSTOP)
        rdma_get(c, 'late', w.target.at(0, 64 * MIB))
        try:
            read_fails(WRITE_FAILED, c)
            same(w.target.mem[:64 * MIB].count(b'\0'), 64 * MIB)
        finally:
            os.kill(w.target.process.pid, signal.SIGCONT)
        until(lambda: w.admin.stats()['transfers'] == 0)
        assert w.target.mem[:64 * MIB] == data
        w.admin.config(test_error_delay_ms=200)
        rdma_get(c, 'late', w.target.at(0, 64 * MIB))
        assert elapsed(lambda: read_fails(WRITE_FAILED, c)) > 0.18
        until(lambda: w.admin.stats()['transfers'] == 0)
        w.admin.config(test_error_delay_ms=0)


@test
def switch_drop_while_running(w):
    n = 8 * 4096
    data = w.random.randbytes(n)
    w.admin.call('BLOB.TCP_SET', 'late', data)
    with switched(w.admin, chunk_size=4096, test_drop_while_running='yes', test_error_after_bytes=4096,
                  test_delay_between_chunks_ms=400):
        c = w.conn()
        w.target.mem[:n] = bytes(n)
        rdma_get(c, 'late', w.target.at(0, n))
        assert c.closed_by_server()
        same(w.target.mem[n - 4096:n], bytes(4096))
        until(lambda: w.target.mem[:n] == data)
        c = w.conn()
        w.admin.call('DEL', 'late')
        rdma_set(c, 'late', n, w.target.at(0, n))
        assert c.closed_by_server()
        same(w.admin.call('EXISTS', 'late'), 0)
        until(lambda: w.admin.call('EXISTS', 'late') == 1)
    same(w.admin.call('BLOB.TCP_GET', 'late'), data)


@test
def switch_drop_before_reply(w):
    data = w.fill(0, 4096)
    with switched(w.admin, test_drop_before_reply='yes'):
        c = w.conn()
        rdma_set(c, 'dropped', 4096, w.target.at(0, 4096))
        c.send('SET', 'after', 'x')
        assert c.closed_by_server()
        same(w.admin.call('BLOB.TCP_GET', 'dropped'), data)
        same(w.admin.call('EXISTS', 'after'), 0)
        c = w.conn()
        rdma_get(c, 'dropped', w.target.at(4096, 4096))
        assert c.closed_by_server()
        same(w.target.mem[4096:8192], data)


@test
def switch_never_answer(w):
    data = w.fill(0, 4096)
    with switched(w.admin, test_never_answer='yes'):
        c, d = w.conn(), w.conn()
        rdma_set(c, 'silent', 4096, w.target.at(0, 4096))
        until(lambda: w.admin.call('EXISTS', 'silent') == 1)
        rdma_get(d, 'silent', w.target.at(4096, 4096))
        until(lambda: w.target.mem[4096:8192] == data)
        for conn in c, d:
            conn.sock.settimeout(0.2)
            try:
                raise AssertionError(conn.read())
            except TimeoutError:
                conn.close()
        until(lambda: w.admin.stats()['transfers'] == 0)


@test
def switch_wrong_crc_and_null(w):
    c = w.conn()
    w.admin.call('BLOB.TCP_SET', 'k', b'123456789')
    with switched(w.admin, test_wrong_crc='yes'):
        rdma_get(c, 'k', w.target.at(0, 9))
        same(c.read(), [9, 3808858755 ^ 1])
    with switched(w.admin, test_get_null='yes'):
        rdma_get(c, 'k', w.target.at(0, 9))
        same(c.read(), None)
    rdma_get(c, 'k', w.target.at(0, 9))
    same(c.read(), [9, 3808858755])


@test
def switch_hello(w):
    with switched(w.admin, test_refuse_hello=2):
        c = w.server.conn()
        for _ in range(2):
            fails('ERR session create: service 0: refused by test switch', c, 'BLOB.RDMA_HELLO', w.target.address)
        same(len(c.call('BLOB.RDMA_HELLO', w.target.address)), 2)
    replies = []
    for mode in range(1, 5):
        with switched(w.admin, test_hello_garbage=mode):
            replies.append(w.conn().hello)
    same(replies[:3], [2, [b'not hexadecimal'] * 2, []])
    same((len(replies[3][0]), replies[3][1]), (32, b'00'))


@test
def switch_malformed_replies(w):
    c = w.conn()
    w.admin.call('BLOB.TCP_SET', 'k', b'123456789')
    crc = 3808858755
    wants = [9, [9, crc, 0], [-9, crc], [9, crc + 2**32], [21, crc], b'surprise']
    for mode, want in enumerate(wants, 1):
        with switched(w.admin, test_get_reply=mode):
            rdma_get(c, 'k', w.target.at(0, 20))
            same(c.read(), want)
    for mode, want in enumerate([1, 'SURPRISE', None, ['OK']], 1):
        with switched(w.admin, test_set_reply=mode):
            rdma_set(c, 'k', 20, w.target.at(0, 20))
            same(c.read(), want)


@test
def switch_journal(w):
    c = w.conn()
    data = w.fill(0, 5000)
    path = os.path.join(w.server.dir, 'journal')
    line = f'- {b"a key".hex()} {data[:16].hex()}\n'
    with switched(w.admin, test_journal=path):
        for _ in range(2):
            rdma_set(c, 'a key', 5000, w.target.at(0, 5000))
            same(c.read(), 'OK')
        same(open(path).read(), 2 * line)
        rdma_get(c, 'a key', w.target.at(0, 5000))
        same(c.read()[0], 5000)
        fails(READ_FAILED, c, 'BLOB.RDMA_SET', 'a key', 5000, 12345, 0, 5000)
        same(open(path).read(), 2 * line)
        with switched(w.admin, test_drop_before_reply='yes'):
            rdma_set(c, 'a key', 5000, w.target.at(0, 5000))
            assert c.closed_by_server()
        same(open(path).read(), 3 * line)
        w.admin.call('BLOB.TCP_SET', 'k', b'abc')
        same(open(path).read(), 3 * line + f'- {b"k".hex()} {b"abc".hex()}\n')
    w.admin.call('BLOB.TCP_SET', 'k', b'abc')
    same(len(open(path).readlines()), 4)


@test
def switch_answer_error(w):
    c = w.conn()
    w.admin.call('BLOB.TCP_SET', 'k', b'123456789')
    for text in ['MOVED 1 127.0.0.1:1', 'ERR disk staging buffer pool exhausted; retry later', 'LOADING busy']:
        with switched(w.admin, test_answer_error=text, test_answer_error_count=2):
            fails(text, c, 'BLOB.RDMA_GET', 'k', *w.target.at(0, 20))
            fails(text, c, 'BLOB.RDMA_SET', 'k', 20, *w.target.at(0, 20))
            rdma_get(c, 'k', w.target.at(0, 20))
            same(c.read()[0], 9)
    fails("ERR CONFIG SET failed (possibly related to argument 'largeobj.test-answer-error') - "
          'text too long, or with control characters', w.admin,
          'CONFIG', 'SET', 'largeobj.test-answer-error', 'x' * 200)
