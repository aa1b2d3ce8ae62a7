#!/usr/bin/env python3
"""What the unit forbids, and what it must not forbid; users with a small memlock limit share one budget.

How it is run: host.py
"""
import json
import re
import sys

import host
from host import ADMIN_PATH, CLIENT_PATH, SERVICE, UNITS

EXPOSURE_MOST = 1.8
MIB = 1 << 20

# The unit as installed, with another program in the daemon's place.
PROBE = """[Service]
Type=oneshot
ExecStart=
ExecStart=/usr/bin/python3 /opt/probe.py {device}
Restart=no
RestartForceExitStatus=
WatchdogSec=0
RuntimeDirectoryPreserve=yes
"""

# What the probe must have met. EPERM: by the filter of system calls or devices. Kernels differ about executable memory.
REFUSED = {
    'write /etc': 'EROFS', 'write /usr': 'EROFS', 'write /var/lib': 'EROFS', 'write /opt': 'EROFS',
    'list /home': 'EACCES', 'read /proc/1/status': 'ENOENT', 'AF_PACKET': 'EAFNOSUPPORT',
    'executable memory': ('EPERM', 'EACCES'), 'io_uring_setup': 'EPERM', 'sched_setaffinity': 'EPERM',
    'mount': 'EPERM', 'unshare': 'EPERM', 'setuid': 'EPERM', 'ptrace': 'EPERM', 'keyctl': 'EPERM',
}
ALLOWED = ('write /run/glide-rdmad', 'read /proc/meminfo', 'null', 'AF_NETLINK', 'AF_INET6', 'memory file')


class Sandbox(host.Host):

    def test_install(self):
        """installed and started"""
        self.install()
        self.box.must('systemctl', 'start', 'glide-rdmad')

    def test_verify(self):
        """systemd-analyze verify has nothing to say"""
        said = self.box.must('systemd-analyze', 'verify', '--man=no', *UNITS)
        assert said == '', said

    def test_verify_override(self):
        """nor has it with everything that the example of a drop-in offers"""
        with open(f'{self.box.root}{self.arguments.prefix}/share/doc/glide-rdmad/examples/override.conf',
                  encoding='utf-8') as file:
            text = re.sub(r'^#(\w+=)', r'\1', file.read(), flags=re.M)
        assert text.count('\nLoadCredential=') == 1, text
        self.drop_in(text)
        said = self.box.must('systemd-analyze', 'verify', '--man=no', SERVICE)
        found = self.properties(SERVICE, 'LimitCORE', 'LimitMEMLOCK', 'SupplementaryGroups', 'ReadWritePaths')
        self.drop_in('')
        assert said == '', said
        assert found == {'LimitCORE': 'infinity', 'LimitMEMLOCK': str(68 << 30), 'SupplementaryGroups': 'batch',
                         'ReadWritePaths': '/srv/glide-rdmad'}, found

    def test_exposure(self):
        """systemd-analyze security: exposure of at most 1.8"""
        path = self.property('FragmentPath')
        said = self.box.must('systemd-analyze', 'security', '--no-pager', '--offline=yes', path)
        exposure = float(re.search(r'Overall exposure level for \S+: ([\d.]+)', said)[1])
        assert exposure <= EXPOSURE_MOST, said

    def test_directives(self):
        """what RDMA and clients need of the unit"""
        self.expect(SERVICE, Type='notify', LimitMEMLOCK='infinity', LimitNOFILE='65536', LimitCORE='0', OOMScoreAdjust='-900',
                    PrivateDevices='no', PrivateUsers='no', PrivateNetwork='no', ProcSubset='all',
                    RuntimeDirectoryPreserve='yes', UMask='0007', User='glide-rdmad', Group='glide-rdmad',
                    CapabilityBoundingSet='', AmbientCapabilities='', DevicePolicy='closed',
                    RestartForceExitStatus='75', RestartPreventExitStatus='64 78', Restart='on-failure')

    def test_devices(self):
        """of devices: verbs and the connection manager, no other of RDMA, and not all misc ones"""
        allowed = self.box.must('systemctl', 'show', '--property=DeviceAllow', SERVICE)
        own = {line.split('=', 1)[1] for line in allowed.splitlines()} - {'char-rtc r'} # which ProtectClock= adds
        assert own == {'char-infiniband_verbs rw', '/dev/infiniband/rdma_cm rw'}, own

    def test_quiet(self):
        """a device that this host lacks is no warning"""
        journal = self.read_journal('--priority=warning', f'UNIT={SERVICE}', '+', f'_SYSTEMD_UNIT={SERVICE}')
        assert 'evice' not in journal, journal

    def probe(self, device):
        self.box.must('sh', '-c', f'cp {self.property("FragmentPath")} /etc/systemd/system/probe.service && '
                      'sed -i -e /^Sockets=/d /etc/systemd/system/probe.service')
        self.drop_in(PROBE.format(device=device), 'probe.service')
        self.box.must('systemctl', 'start', 'probe')
        return json.loads(self.read_journal('--unit=probe', '_COMM=python3'))

    def any_device(self):
        """A device file that users without privileges can open, and that has nothing to do with RDMA."""
        for name, numbers in (('fuse', ('10', '229')), ('tun', ('10', '200')), ('kmsg', ('1', '11'))):
            self.box.must('mknod', '--mode=0666', f'/dev/probe-{name}', 'c', *numbers)
            if self.box.run(*self.as_user('outsider', 'sh', '-c', f'exec 3<>/dev/probe-{name}')).returncode == 0:
                return f'/dev/probe-{name}'
        return '/dev/null'

    def test_probe(self):
        """another program in the daemon's place cannot write or gain rights; it can do the daemon's work"""
        self.device = self.any_device()
        self.found = self.probe(self.device)
        for name, wanted in REFUSED.items():
            met = self.found[name]
            assert met in (wanted if isinstance(wanted, tuple) else (wanted,)), f'{name}: {met}, not {wanted}'
        for name in ALLOWED:
            assert self.found[name] == 'done', f'{name}: {self.found[name]}'
        sets = self.found['capabilities']
        assert set(sets) == {'0000000000000000'} and len(sets) == 5, self.found
        assert self.found['no new privileges'] == ['1'] and self.found['core'] == ['0', '0'], self.found

    def test_other_device(self):
        """it cannot open a device that is not allowed, whatever its file's mode"""
        if self.device == '/dev/null':
            raise host.Skip('there is no device that users without privileges can open')
        closed = self.box.run('systemd-run', '--quiet', '--wait', '--pipe', '--property=DevicePolicy=closed',
                              'sh', '-c', f'exec 3<>{self.device}')
        if closed.returncode == 0:
            raise host.Skip('systemd in the container cannot restrict devices: no writable control group of devices')
        assert self.found['device'] == 'EPERM', self.found['device']

    def test_one_budget(self):
        """users with a memlock limit of 64 KiB share one budget of registered memory, counted exactly"""
        self.overlay('[memory]\npinned_limit = 64M\n')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        self.box.must('touch', '/tmp/hold')
        self.box.must('chmod', '0644', '/tmp/hold')
        holders = []
        for number, size in ((1, 20 * MIB), (2, 30 * MIB + 4096)):
            self.box.must('useradd', '--no-create-home', '--groups=glide-rdmad', f'user{number}')
            holders.append(self.hold(f'user{number}', size))
            assert holders[-1].stdout.readline() == 'registered\n'
        used = 50 * MIB + 4096
        memory = self.status()['memory']
        assert (memory['memlock']['used'], memory['memlock']['limit'], memory['regions']) == (used, 64 * MIB, 2), memory
        users = json.loads(self.box.must(self.ctl, '--admin-socket', ADMIN_PATH, '--json', 'users'))['users']
        pinned = {self.box.must('id', '--user', '--name', str(user['uid'])): user['pinned_bytes'] for user in users
                  if user['socket'] == 'default'}
        assert pinned == {'user1': 20 * MIB, 'user2': 30 * MIB + 4096}, users
        host.wait(lambda: f'2 regions, {used} bytes registered' in self.property('StatusText'), 60, 'another STATUS=')
        refused = self.hold('member', 16 * MIB)
        said = refused.stdout.readline()
        assert said == f'over_budget budget=memlock used={used} limit={64 * MIB} asked={16 * MIB}\n', said
        self.box.must('rm', '/tmp/hold')
        for holder in (*holders, refused):
            holder.communicate(timeout=30)
        host.wait(lambda: self.status()['memory']['memlock']['used'] == 0, 60, 'memory is still registered')

    def hold(self, user, size):
        return self.box.start(*self.as_user(user, 'python3', '/opt/hold.py', CLIENT_PATH, str(size), '/tmp/hold'))

    def test_credential(self):
        """LoadCredential=: the daemon authenticates with a password that root alone can read"""
        self.write('/etc/secret', 'open sesame\n')
        self.box.must('chmod', '0400', '/etc/secret')
        self.valkey('acl', 'setuser', 'transfers', 'on', '>open sesame', 'allkeys', 'allcommands')
        self.overlay('[valkey]\nuser = transfers\n'
                     'password_file = /run/credentials/glide-rdmad.service/valkey-password\n')
        self.drop_in('[Service]\nLoadCredential=valkey-password:/etc/secret\n')
        self.box.must('systemctl', 'restart', 'glide-rdmad')
        self.move_value()
        assert 'user=transfers' in self.valkey('client', 'list'), 'the user is another'


if __name__ == '__main__':
    sys.exit(host.main(Sandbox, __file__))
