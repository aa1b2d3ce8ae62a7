"""The client library against the real daemon."""
import os
import threading

from lib import expect, grd, tap, wait
from lib.child import in_child
from lib.memory import MIB, noise
from lib.session import Session
from lib.stage import Stage


def connect(stage):
    return grd.Client(stage.daemon.path)


def test_round_trip(stage):
    """set and get with checksums"""
    data = noise(3 * MIB + 1, seed=8)
    with connect(stage) as client:
        region = client.create(8 * MIB)
        expect.holds(region.size >= 8 * MIB and region.address, 'region')
        region.write(100, data)
        receipt = region.set(b'key', 100, len(data), checksum=grd.CHECKSUM_COMPUTE)
        expect.equal((receipt.path, receipt.verified), (grd.PATH_RDMA, True))
        receipt = region.get(b'key', 4 * MIB + 3)
        expect.equal((receipt.found, receipt.verified, receipt.length), (True, True, len(data)))
        expect.same_bytes(region.read(4 * MIB + 3, len(data)), data, 'value')
        expect.equal(region.close(), True)


def test_client_info(stage):
    """What the daemon said at connect"""
    with connect(stage) as client:
        info = client.info()
        expect.equal((info.protocol, info.provider, info.draining), (1, b'tcp', False))
        expect.holds(info.server.startswith(b'glide-rdmad '), info.server)
        expect.equal(info.message_bytes_max, 65536)


def test_missing_and_too_small(stage):
    """A missing key is a success without a value; a window too small is told what is needed"""
    stage.valkey.store('large', b'x' * 5000)
    with connect(stage) as client:
        region = client.create(8192)
        receipt = region.get(b'missing')
        expect.equal((receipt.found, receipt.length, receipt.verified), (False, 0, False))
        with expect.error('need_larger_window') as refused:
            region.get(b'large', 0, 4999)
        expect.equal(refused.raised.need, 5000)
        with expect.error('out_of_range'):
            region.get(b'large', 0, 100_000)
        stage.valkey.call('SET', 'text', 'x')
        with expect.error('wrong_type'):
            region.get(b'text')
        region.close()


def test_keys(stage):
    """exists, delete, info, with more keys than fit one request"""
    stage.valkey.store('a', b'123456789')
    with connect(stage) as client:
        expect.equal(client.exists(b'a', b'\0absent'), [True, False])
        info = client.key_info(b'a', b'absent')
        expect.equal((info[0].found, info[0].length, info[0].crc32c, info[1].found), (True, 9, 0xE3069283, False))
        expect.equal(client.exists(*[b'k%d' % n for n in range(1000)], b'a'), [False] * 1000 + [True])
        expect.equal(client.exists(*[bytes([n]) * 16384 for n in range(20)]), [False] * 20)
        expect.equal(client.delete(b'a', b'a'), [True, False])


def test_registered_memory(stage):
    """A memory file of the caller's, mapped by the library or not"""
    with stage.memory(MIB, fill=0x33) as memory, connect(stage) as client:
        region = client.register(memory.fd)
        expect.equal((region.address, region.size), (None, MIB))
        region.set(b'mine', 0, 1000, checksum=grd.CHECKSUM_COMPUTE)
        expect.equal(stage.valkey.value('mine'), b'\x33' * 1000)
        expect.equal(region.get(b'mine', 5000).verified, True)
        mapped = client.register(memory.fd, 4096, 8192, flags=grd.MAP)
        expect.equal(mapped.read(0, 8192), memory[4096:12288])
        mapped.close()
        region.close()


def test_many_threads(stage):
    """Many threads share one client and one region"""
    threads, rounds, size = 16, 40, 20_000
    failures = []

    def work(region, number):
        key = b'thread %d' % number
        at = number * 2 * size
        try:
            for turn in range(rounds):
                data = noise(size, seed=number * 1000 + turn + 1)
                region.write(at, data)
                region.set(key, at, size, checksum=grd.CHECKSUM_COMPUTE)
                receipt = region.get(key, at + size, size)
                assert receipt.verified and region.read(at + size, size) == data
                if turn % 10 == 0:
                    assert region.client.exists(key) == [True]
        except Exception as error:
            failures.append(f'thread {number}: {error!r}')

    with connect(stage) as client:
        region = client.create(threads * 2 * size)
        workers = [threading.Thread(target=work, args=(region, number)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        expect.equal(failures, [])
        expect.equal(region.close(), True)


def test_window_in_use(stage):
    """A get of a window that another get uses: overlap"""
    stage.valkey.store('value', b'v' * 1000)
    with connect(stage) as client:
        region = client.create(8192)
        with stage.valkey.faults(test_delay_before_reply_ms=3000):
            worker = threading.Thread(target=lambda: region.get(b'value', 0, 1000))
            worker.start()
            deadline = threading.Event()
            while stage.valkey.info('transfers') == 0:
                deadline.wait(0.005)
            with expect.error('overlap'):
                region.get(b'value', 999, 1000)
            with expect.error('busy'):
                region.close()
            worker.join()
        region.get(b'value', 999, 1000)
        region.close()


def test_deadline(stage):
    """A deadline"""
    with connect(stage) as client:
        region = client.create(8192)
        region.set(b'late', 0, 100)  # the connection is there: the time is enough to send it
        with stage.valkey.faults(test_never_answer='yes'):
            with expect.error('deadline') as passed:
                region.set(b'late', 0, 100, deadline_ms=3000)
            expect.equal(passed.raised.may_have_run, True)
        region.close()
    stage.valkey.wait_idle()  # the next test counts its own transfers


def test_closing_a_client(stage):
    """Closing a client breaks off the calls that other threads have in flight"""
    client = connect(stage)
    region = client.create(8192)
    outcomes = []

    def call():
        try:
            region.set(b'closing', 0, 100)
            outcomes.append('ok')
        except grd.GrdError as error:
            outcomes.append(error.name)

    with stage.valkey.faults(test_delay_before_reply_ms=10_000):
        workers = [threading.Thread(target=call) for _ in range(3)]
        for worker in workers:
            worker.start()
        waiting = threading.Event()
        while stage.valkey.info('transfers') < 3:
            waiting.wait(0.005)
        client.close()
        for worker in workers:
            worker.join(60)
    expect.equal(sorted(outcomes), ['closed'] * 3)
    with Session(stage.daemon.admin_path, hello=False) as operator:
        wait.until(lambda: not operator.call('regions')['regions'], 'the registration is closed with the client')
    with expect.error('closed'):
        region.set(b'closing', 0, 100)
    region.write(0, b'still mapped')
    region.close()


def test_forked_child(stage):
    """A forked child gets an error from every call, may close everything, and the parent goes on"""
    with connect(stage) as client:
        region = client.create(8192)
        region.set(b'before', 0, 100)

        def child():
            names = []
            for call in (lambda: region.set(b'child', 0, 100), lambda: region.get(b'before', 0, 100),
                         lambda: client.exists(b'before'), client.info, lambda: client.create(4096)):
                try:
                    call()
                    names.append('ok')
                except grd.GrdError as error:
                    names.append(error.name)
            sockets = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')
                       if os.path.islink(f'/proc/self/fd/{fd}')]
            region.close()
            client.close()
            return names + [sum(link.startswith('socket:') for link in sockets)]

        sockets_before = sum(os.readlink(f'/proc/self/fd/{fd}').startswith('socket:')
                             for fd in os.listdir('/proc/self/fd') if os.path.islink(f'/proc/self/fd/{fd}'))
        expect.equal(in_child(child), str(['forked'] * 5 + [sockets_before - 1]))
        region.get(b'before', 0, 100)
        expect.equal(stage.valkey.call('EXISTS', 'child'), 0)
        region.close()


def test_no_daemon(stage):
    """Nobody listens, or the socket is closed to the user"""
    with expect.error('no_daemon'):
        grd.Client(os.path.join(stage.folder, 'nobody.sock'))
    with expect.error('invalid_argument'):
        with connect(stage) as client:
            client.exists(b'')


tap.run(globals(), Stage())
