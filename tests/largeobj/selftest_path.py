"""The normal path, and what the key space does with objects."""

import random
import threading

from selftest_harness import (
    MIB, Target, NO_SESSION, WRONGTYPE, flat, crc32c, rdma_set, rdma_get, same, fails, read_fails,
    until, switched, test,
)


@test
def hello_answers_one_stable_address_for_each_endpoint(w):
    a, b = w.conn(), w.conn()
    same(len(a.hello), 2)
    same(a.hello, b.hello)
    for address in a.hello:
        same((len(address), address.lower()), (32, address))
        w.target.tell('insert ' + address.decode())
    fails('ERR RDMA session already established', a, 'BLOB.RDMA_HELLO', w.target.address)
    same(w.admin.stats()['endpoints'], 2)


@test
def sizes_from_one_byte_to_64_mib(w):
    c = w.conn()
    for n in [1, 2, 63, 4095, 4096, 4097, 65536, MIB + 3, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 24 * MIB, 64 * MIB]:
        data = w.fill(0, n)
        rdma_set(c, 'k', n, w.target.at(0, n))
        same(c.read(), 'OK')
        assert c.call('BLOB.TCP_GET', 'k') == data, f'SET of {n} bytes'
        w.target.mem[64 * MIB:64 * MIB + n + 1] = b'\xee' * (n + 1)
        rdma_get(c, 'k', w.target.at(64 * MIB, n + 1))
        length, crc = c.read()
        same(length, n)
        assert w.target.mem[64 * MIB:64 * MIB + n] == data, f'GET of {n} bytes'
        same(w.target.mem[64 * MIB + n], 0xee)
        if n <= 65536:
            same(crc, crc32c(data))
        c.call('BLOB.TCP_SET', 'twin', data)
        same(c.call('BLOB.INFO', 'twin', 'CRC'), crc)


@test
def checksum_of_the_check_string(w):
    c = w.conn()
    w.target.mem[:9] = b'123456789'
    rdma_set(c, 'k', 9, w.target.at(0, 9), crc=3808858755)
    same(c.read(), 'OK')
    rdma_get(c, 'k', w.target.at(0, 9))
    same(c.read(), [9, 0xE3069283])


@test
def regions_with_boundaries_inside_chunks(w):
    c = w.conn()
    with switched(w.admin, chunk_size=4096, test_shuffle='yes'):
        for split in [[2048, 2048], [1024, 3072], [1, 4095, 1, 9999], [5000, 5000, 3], [100000, 1, 70000]]:
            n = sum(split)
            data = w.random.randbytes(n)
            source = [w.target.at(10000 + 200000 * i, s, region=i % 2) for i, s in enumerate(split)]
            w.target.mem[:4 * MIB] = b'\xee' * 4 * MIB
            offset = 0
            for i, s in enumerate(split):
                at = 10000 + 200000 * i + (MIB if i % 2 else 0)
                w.target.mem[at:at + s] = data[offset:offset + s]
                offset += s
            rdma_set(c, 'k', n, *source)
            same(c.read(), 'OK')
            assert c.call('BLOB.TCP_GET', 'k') == data, f'SET {split}'
            before = w.target.mem[:4 * MIB]
            for i, s in enumerate(split):
                at = 10000 + 200000 * i + (MIB if i % 2 else 0)
                w.target.mem[at:at + s] = b'\xcc' * s
            rdma_get(c, 'k', *source)
            same(c.read(), [n, crc32c(data) if n < 20000 else c.call('BLOB.INFO', 'k', 'CRC')])
            assert w.target.mem[:4 * MIB] == before, f'GET {split}'


@test
def surplus_of_regions_is_left_alone(w):
    c = w.conn()
    data = w.fill(0, 1000)
    rdma_set(c, 'k', 1000, w.target.at(0, 600), w.target.at(600, 1400), w.target.at(8000, 5))
    same(c.read(), 'OK')
    w.target.mem[:16384] = b'\xee' * 16384
    rdma_get(c, 'k', w.target.at(0, 600), w.target.at(600, 1400), w.target.at(8000, 5))
    same(c.read()[0], 1000)
    same(w.target.mem[:1000], data)
    same(w.target.mem[1000:16384], b'\xee' * 15384)


@test
def up_to_256_triples(w):
    c = w.conn()
    data = w.fill(0, 256 * 40)
    triples = [w.target.at(40 * i, 40) for i in range(256)]
    rdma_set(c, 'k', len(data), *triples)
    same(c.read(), 'OK')
    same(c.call('BLOB.TCP_GET', 'k'), data)
    rdma_get(c, 'k', *reversed(triples))
    same(c.read()[0], len(data))
    same(w.target.mem[:40], data[-40:])
    fails('ERR too many memory addresses (max 256)', c, 'BLOB.RDMA_GET', 'k', *flat(triples + triples[:1]))
    fails('ERR too many memory addresses (max 256)', c, 'BLOB.RDMA_SET', 'k', 1, *flat(triples + triples[:1]))


@test
def small_chunks_use_both_endpoints_and_no_more_than_64_operations_each(w):
    c = w.conn()
    n = 4 * MIB
    data = w.fill(0, n)
    before = w.admin.stats()
    with switched(w.admin, chunk_size=4096):
        rdma_set(c, 'k', n, w.target.at(0, n))
        same(c.read(), 'OK')
        rdma_get(c, 'k', w.target.at(64 * MIB, n))
        same(c.read()[0], n)
    assert w.target.mem[64 * MIB:64 * MIB + n] == data
    after = w.admin.stats()
    used = [after[f'endpoint{i}_operations'] - before[f'endpoint{i}_operations'] for i in range(2)]
    same(sum(used), 2048)
    assert min(used) > 500, used
    same([after[f'endpoint{i}_in_flight_max'] for i in range(2)], [64, 64])
    same((after['in_flight'], after['transfers']), (0, 0))
    same(after['rdma_reads_total'] - before['rdma_reads_total'], 1)
    same(after['rdma_write_bytes_total'] - before['rdma_write_bytes_total'], n)


@test
def commands_of_one_connection_run_one_after_the_other(w):
    c = w.conn()
    w.fill(0, 100000)
    for i in range(20):
        rdma_set(c, 'pipe', 5000 + i, w.target.at(0, 100000))
        c.send('BLOB.INFO', 'pipe', 'LEN')
        rdma_get(c, 'pipe', w.target.at(100000, 5000 + i))
        c.send('EXPIRE', 'pipe', 100)
    for i in range(20):
        same([c.read(), c.read(), c.read()[0], c.read()], ['OK', 5000 + i, 5000 + i, 1])


@test
def many_connections_share_one_client_address(w):
    conns = [w.conn() for _ in range(12)]
    same(w.admin.stats()['rdma_sessions'] >= 12, True)
    w.fill(0, 12 * MIB)
    want = w.target.mem[:12 * MIB]
    for i, c in enumerate(conns):
        rdma_set(c, f'share{i}', MIB, w.target.at(i * MIB, MIB))
    for c in conns:
        same(c.read(), 'OK')
    for c in conns[::2]:
        c.close()
    until(lambda: w.admin.stats()['rdma_sessions'] <= 7)
    for i, c in enumerate(conns[1::2]):
        rdma_get(c, f'share{2 * i}', w.target.at((20 + 2 * i) * MIB, MIB))
        rdma_get(c, f'share{2 * i + 1}', w.target.at((20 + 2 * i + 1) * MIB, MIB))
    for c in conns[1::2]:
        same([c.read()[0], c.read()[0]], [MIB, MIB])
        c.close()
    assert w.target.mem[20 * MIB:32 * MIB] == want


@test
def several_clients_at_once(w):
    failures = []

    def client(number):
        try:
            target = Target(8 * MIB)
            rng = random.Random(number)
            for round_ in range(6):
                c = w.server.conn(target)
                n = rng.randrange(1, 4 * MIB)
                target.mem[:n] = data = rng.randbytes(n)
                rdma_set(c, f'many{number}', n, target.at(0, n))
                same(c.read(), 'OK')
                rdma_get(c, f'many{number}', target.at(4 * MIB, n))
                same(c.read()[0], n)
                assert target.mem[4 * MIB:4 * MIB + n] == data
                c.close()
            target.close()
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(failures, [])


@test
def session_ends_with_its_connection(w):
    target = Target(4096)
    until(lambda: w.admin.stats()['rdma_sessions'] == 0)  # those of other tests: the server frees them a little later
    for _ in range(5):
        before = w.admin.stats()['rdma_sessions']
        c = w.server.conn(target)
        same(w.admin.stats()['rdma_sessions'], before + 1)
        rdma_set(c, 'k', 4096, target.at(0, 4096))
        same(c.read(), 'OK')
        c.close()
        until(lambda: w.admin.stats()['rdma_sessions'] == before)
    d = w.server.conn()
    fails(NO_SESSION, d, 'BLOB.RDMA_GET', 'k', *target.at(0, 4096))
    target.close()


@test
def one_chunk_of_128_mib(w):
    c = w.conn()
    with switched(w.admin, chunk_size='256mb'):
        w.fill(0, 64 * MIB)
        rdma_set(c, 'big', 128 * MIB, w.target.at(0, 128 * MIB))
        same(c.read(), 'OK')
        rdma_get(c, 'big', w.target.at(64 * MIB, 128 * MIB))
        same(c.read()[0], 128 * MIB)
        assert w.target.mem[:64 * MIB] == w.target.mem[64 * MIB:128 * MIB]
    c.call('DEL', 'big')


# Keys.

@test
def core_commands_on_objects(w):
    c = w.conn()
    data = w.fill(0, 5000)
    rdma_set(c, 'k', 5000, w.target.at(0, 5000))
    same(c.read(), 'OK')
    same(c.call('COPY', 'k', 'k2'), 1)
    assert c.call('MEMORY', 'USAGE', 'k') > 5000
    same(c.call('TYPE', 'k'), 'largeob-k')
    same(c.call('BLOB.INFO', 'k'), ['len', 5000, 'crc', crc32c(data), 'tier', 'dram'])
    same(c.call('BLOB.INFO', 'k', 'len'), 5000)
    same(c.call('BLOB.INFO', 'k', 'Tier'), 'dram')
    fails('ERR invalid information field', c, 'BLOB.INFO', 'k', 'color')
    same(c.call('BLOB.INFO', 'missing'), None)
    same(c.call('BLOB.TCP_GET', 'missing'), None)
    same(c.call('DEL', 'k'), 1)
    same(c.call('BLOB.TCP_GET', 'k2'), data)
    same(len(c.call('DEBUG', 'DIGEST-VALUE', 'k2')), 1)
    c.call('PEXPIRE', 'k2', 30)
    until(lambda: c.call('EXISTS', 'k2') == 0)
    fails(WRONGTYPE, c, 'GET', 'twin')
    c.call('BLOB.TCP_SET', 'k3', b'abc')
    same(c.call('SET', 'k3', 'plain'), 'OK')
    for args in [('TCP_GET', 'k3'), ('INFO', 'k3'), ('TCP_SET', 'k3', 'x'), ('RDMA_GET', 'k3', 1, 2, 3)]:
        fails(WRONGTYPE, c, 'BLOB.' + args[0], *args[1:])
    fails(WRONGTYPE, c, 'BLOB.RDMA_SET', 'k3', 10, *w.target.at(0, 10))
    same(c.call('GET', 'k3'), b'plain')
    c.call('DEL', 'k3')


@test
def objects_survive_rdb_dump_and_append_only_file(w):
    c = w.conn()
    c.call('FLUSHALL')
    data = w.fill(0, 3 * MIB)
    rdma_set(c, 'saved', 3 * MIB, w.target.at(0, 3 * MIB))
    same(c.read(), 'OK')
    same(c.call('DEBUG', 'RELOAD'), 'OK')
    same(c.call('BLOB.TCP_GET', 'saved'), data)
    dump = c.call('DUMP', 'saved')
    same(c.call('RESTORE', 'again', 0, dump), 'OK')
    same(c.call('BLOB.INFO', 'again'), c.call('BLOB.INFO', 'saved'))
    same(w.admin.stats()['num_objects'], 2)
    c.call('CONFIG', 'SET', 'aof-use-rdb-preamble', 'no')
    c.call('CONFIG', 'SET', 'appendonly', 'yes')
    until(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence'))
    same(c.call('DEBUG', 'LOADAOF'), 'OK')
    same(c.call('BLOB.TCP_GET', 'saved'), data)
    c.call('CONFIG', 'SET', 'appendonly', 'no')
    c.call('BGSAVE')
    until(lambda: b'rdb_bgsave_in_progress:0' in c.call('INFO', 'persistence'))


@test
def a_running_get_keeps_its_value(w):
    c = w.conn()
    n = 10 * 4096
    data = w.fill(0, n)
    c.call('BLOB.TCP_SET', 'pin', data)
    w.target.mem[:n] = bytes(n)
    with switched(w.admin, chunk_size=4096, test_delay_between_chunks_ms=400):
        rdma_get(c, 'pin', w.target.at(0, n))
        until(lambda: w.target.mem[:4096] == data[:4096])
        same(w.admin.call('BLOB.TCP_SET', 'pin', b'other'), 'OK')
        same(w.admin.call('DEL', 'pin'), 1)
        assert w.target.mem[n - 4096:n] == bytes(4096), 'the GET was over too early for this test'
        same(c.read(), [n, c.call('BLOB.INFO', 'pin', 'CRC') or crc32c(data)])
    same(w.target.mem[:n], data)


@test
def the_set_that_arrived_later_wins(w):
    a, b = w.conn(), w.conn()
    w.target.mem[:8] = b'firstSET'
    w.target.mem[8:16] = b'2ndvalue'
    stale = w.admin.stats()['set_finalize_stale']
    with switched(w.admin, test_delay_before_reply_ms=2000):
        rdma_set(a, 'k', 8, w.target.at(0, 8))
        until(lambda: w.admin.stats()['transfers'] == 1)
        w.admin.config(test_delay_before_reply_ms=0)
        rdma_set(b, 'k', 8, w.target.at(8, 8))
        same(b.read(), 'OK')
        same(a.read(), 'OK')
    same(w.admin.call('BLOB.TCP_GET', 'k'), b'2ndvalue')
    same(w.admin.stats()['set_finalize_stale'], stale + 1)


@test
def a_set_is_kept_although_its_client_has_left(w):
    c = w.conn()
    c.call('SELECT', 3)
    w.fill(0, 4096)
    with switched(w.admin, test_delay_before_reply_ms=2000):
        rdma_set(c, 'left', 4096, w.target.at(0, 4096))
        until(lambda: w.admin.stats()['transfers'] == 1)
        c.close()
        until(lambda: w.admin.stats()['transfers'] == 0)
    d = w.server.conn()
    same(d.call('EXISTS', 'left'), 0)
    d.call('SELECT', 3)
    same(d.call('BLOB.TCP_GET', 'left'), w.target.mem[:4096])


@test
def crc_option_of_set(w):
    c = w.conn()
    data = w.fill(0, 3000)
    crc = crc32c(data)
    rdma_set(c, 'k', 3000, w.target.at(0, 3000), crc=crc)
    same(c.read(), 'OK')
    w.fill(0, 3000)
    rdma_set(c, 'k', 3000, w.target.at(0, 3000), crc=crc)
    read_fails('ERR crc mismatch', c)
    same(c.call('BLOB.TCP_GET', 'k'), data)
    for bad in ['-1', 'x', '4294967296', '']:
        fails('ERR invalid crc', c, 'BLOB.RDMA_SET', 'k', 3000, 'CRC', bad, *w.target.at(0, 3000))
    fails("ERR wrong number of arguments for 'BLOB.RDMA_SET' command", c, 'BLOB.RDMA_SET', 'k', 1, 'CRC', 1, 2, 3)
