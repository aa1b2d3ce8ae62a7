"""The service as it is shipped, on a host with systemd and soft-RoCE: what of the unit RDMA needs, and what the kernel
makes of it. The guest itself is the host: unlike a container it restricts devices, and its LimitMEMLOCK= is not bounded
by another.

How it is run: ../systemd/host.py
"""
import os
import resource
import sys

import host
from host import CLIENT_PATH, SERVICE

import rxe

MIB = 1 << 20
LARGE = 64 * MIB  # more than the 8 MiB that a service may lock by default
LIMIT = 96 * MIB
VERBS, MANAGER = 'char-infiniband_verbs rw', '/dev/infiniband/rdma_cm rw'


class Unit(host.Host):
    valkey_unit = host.VALKEY_UNIT.rstrip() + f""" \\
  --largeobj.fabric-provider verbs --largeobj.fabric-interfaces {rxe.SERVER} --largeobj.op-timeout-ms 60000
TimeoutStartSec=300
"""
    config_text = host.CONFIG_TEXT.replace('provider = tcp', f'provider = verbs\nbind = {rxe.DAEMON}')

    def test_install(self):
        """installed"""
        self.install()

    def test_shipped(self):
        """as shipped: a value moves over verbs, by a daemon without rights"""
        self.box.must('systemctl', 'start', 'glide-rdmad')
        before = rxe.packets()
        self.move_value()
        rxe.expect_packets(before)
        status = self.status()
        assert status['fabric']['provider'] == 'verbs' and status['memory']['memlock']['pins'], status
        with open(f'/proc/{self.daemon_pid()}/status', encoding='ascii') as file:
            found = dict(line.split(':', 1) for line in file.read().splitlines())
        assert found['CapEff'].strip() == '0000000000000000' and found['Uid'].split()[0] != '0', found

    def hold(self, size):
        """What a client is told that registers so much."""
        self.box.must('touch', '/tmp/hold')
        self.box.must('chmod', '0644', '/tmp/hold')
        client = self.box.start(*self.as_user('member', 'python3', '/opt/hold.py', CLIENT_PATH, str(size),
                                              '/tmp/hold'))
        try:
            return client.stdout.readline().strip(), rxe.pinned(self.daemon_pid())
        finally:
            os.unlink('/tmp/hold')
            client.communicate(timeout=60)

    def test_memory(self):
        """as shipped: it pins more than a service may by default"""
        assert resource.prlimit(self.daemon_pid(), resource.RLIMIT_MEMLOCK) == (resource.RLIM_INFINITY,) * 2
        idle = rxe.pinned(self.daemon_pid())
        said, pinned = self.hold(LARGE)
        assert (said, pinned - idle) == ('registered', LARGE), (said, pinned, idle)

    def test_memlock(self):
        """a smaller LimitMEMLOCK= is what the budget goes by: it refuses before the kernel, with its numbers"""
        self.overlay('[memory]\npinned_limit = 0\n')
        self.drop_in(f'[Service]\nLimitMEMLOCK={LIMIT}\n')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        memlock = self.status()['memory']['memlock']
        assert (memlock['source'], memlock['rlimit']) == ('RLIMIT_MEMLOCK', LIMIT), memlock
        assert 0 < memlock['limit'] < LIMIT, memlock
        said, _ = self.hold(LIMIT)
        assert said == f'over_budget budget=memlock used=0 limit={memlock["limit"]} asked={LIMIT}', said

    def test_memlock_of_the_kernel(self):
        """what the kernel itself refuses is told too"""
        self.box.must('prlimit', '--pid', str(self.daemon_pid()), f'--memlock={MIB}:{MIB}')
        said, pinned = self.hold(2 * MIB)
        self.overlay('')
        assert said.startswith('over_budget ') and said.endswith(f'asked={2 * MIB}') and pinned == 0, (said, pinned)

    def allow(self, *devices):
        """Restarts the service with these lines alone; (has it started, what it and systemd said)."""
        self.drop_in('[Service]\nDeviceAllow=\n' + ''.join(f'DeviceAllow={device}\n' for device in devices))
        started = self.box.run('systemctl', 'restart', 'glide-rdmad').returncode == 0
        return started, self.box.must('journalctl', '--output=cat', '--lines=50',
                                      f'_SYSTEMD_INVOCATION_ID={self.property("InvocationID")}')

    def test_without_verbs(self):
        """without the line for the verbs devices no NIC is found, and the daemon ends because the fabric is required"""
        self.expect_no_nic(MANAGER)

    def test_without_the_manager(self):
        """nor without the line for the connection manager"""
        self.expect_no_nic(VERBS)

    def expect_no_nic(self, device):
        started, said = self.allow(device)
        assert not started and 'no NIC for provider verbs' in said, said
        self.expect(SERVICE, ExecMainStatus='78', Result='exit-code')

    def test_with_both(self):
        """with both it works again, by a drop-in that says what the unit says"""
        started, said = self.allow(VERBS, MANAGER)
        assert started, said
        self.move_value()
        self.box.must('systemctl', 'stop', *host.UNITS, 'test-valkey')


if __name__ == '__main__':
    if not rxe.here():
        sys.exit()
    sys.exit(host.main_on_this_host(Unit))
