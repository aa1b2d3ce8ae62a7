#!/usr/bin/env python3
"""The examples for operators hold what docs/operations.md says of them.

Usage: test_operator_examples.py EXAMPLES DAEMON        TAP on standard output
"""
import configparser
import os
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

EXAMPLES, DAEMON = sys.argv[1:3]
DRAIN_SECONDS = 10 # the default of [daemon] drain_ms


class Skip(Exception):
    pass


def check_config(text):
    """Reads a configuration as the daemon does."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'glide-rdmad.conf')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        done = subprocess.run([DAEMON, '--check-config', '--config', path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def kubernetes():
    """The objects of kubernetes.yaml by their kinds."""
    if yaml is None:
        raise Skip('no python3-yaml here')
    with open(os.path.join(EXAMPLES, 'kubernetes.yaml'), encoding='utf-8') as file:
        return {document['kind']: document for document in yaml.safe_load_all(file)}


def configuration():
    text = kubernetes()['ConfigMap']['data']['glide-rdmad.conf']
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return text, parser


def pods():
    """Specification and only container of the daemon's pods, and of the example's."""
    objects = kubernetes()
    for spec in (objects['DaemonSet']['spec']['template']['spec'], objects['Pod']['spec']):
        assert len(spec['containers']) == 1
        yield spec, spec['containers'][0]


def mounts(spec, container):
    """Path inside to (volume, mount)."""
    volumes = {volume['name']: volume for volume in spec['volumes']}
    return {mount['mountPath']: (volumes[mount['name']], mount) for mount in container['volumeMounts']}


def test_batch():
    """batch.conf is a good configuration"""
    with open(os.path.join(EXAMPLES, 'batch.conf'), encoding='utf-8') as file:
        check_config(file.read())


def test_objects():
    """kubernetes.yaml: all objects are there and refer to each other"""
    objects = kubernetes()
    assert set(objects) == {'ConfigMap', 'Secret', 'DaemonSet', 'Pod'}, set(objects)
    assert all(document['apiVersion'] and document['metadata']['name'] for document in objects.values())
    template = objects['DaemonSet']['spec']['template']
    assert objects['DaemonSet']['spec']['selector']['matchLabels'].items() <= template['metadata']['labels'].items()
    volumes = {volume['name']: volume for volume in template['spec']['volumes']}
    assert volumes['config']['configMap']['name'] == objects['ConfigMap']['metadata']['name']
    assert volumes['password']['secret']['secretName'] == objects['Secret']['metadata']['name']
    for spec, container in pods():
        assert len(mounts(spec, container)) == len(spec['volumes']) # each is mounted, once


def test_configuration():
    """kubernetes.yaml: its configuration is good, and names what is mounted"""
    text, parser = configuration()
    check_config(text)
    (spec, container), _ = pods()
    inside = mounts(spec, container)
    for section, key in (('socket default', 'path'), ('admin', 'path'), ('valkey', 'password_file')):
        assert os.path.dirname(parser[section][key]) in inside, (section, key)
    assert os.path.basename(parser['valkey']['password_file']) in kubernetes()['Secret']['stringData']
    assert container['command'][-1] == '/etc/glide-rdmad/glide-rdmad.conf' and '/etc/glide-rdmad' in inside
    assert 'pinned_limit' in parser['memory'], 'half of the container\'s memory would be taken'


def test_directory():
    """kubernetes.yaml: the socket's directory is shared, not its file, and clients cannot change it"""
    folder = os.path.dirname(configuration()[1]['socket default']['path'])
    (daemon, client) = (mounts(*pod)[folder] for pod in pods())
    assert daemon[0]['hostPath'] == {'path': folder, 'type': 'DirectoryOrCreate'} and not daemon[1].get('readOnly')
    assert client[0]['hostPath'] == {'path': folder, 'type': 'Directory'} and client[1]['readOnly'] is True


def test_admin():
    """kubernetes.yaml: the admin socket is on no host directory, and the probes ask there"""
    path = configuration()[1]['admin']['path']
    (spec, container), _ = pods()
    assert 'emptyDir' in mounts(spec, container)[os.path.dirname(path)][0]
    for probe in ('readinessProbe', 'livenessProbe'):
        command = container[probe]['exec']['command']
        assert command[:3] == ['glide-rdmactl', '--admin-socket', path], command
        deadline = int(command[command.index('--deadline') + 1])
        assert container[probe]['timeoutSeconds'] * 1000 > deadline, 'kubelet gives up before the program does'


def test_rights():
    """kubernetes.yaml: the daemon has one capability, clients none and no devices; both have the socket's group"""
    group = int(configuration()[1]['socket default']['group'])
    (spec, daemon), (client_spec, client) = pods()
    assert daemon['securityContext']['capabilities'] == {'drop': ['ALL'], 'add': ['IPC_LOCK']}
    assert daemon['securityContext']['runAsUser'] == 0, 'IPC_LOCK would have no effect'
    assert client['securityContext']['capabilities'] == {'drop': ['ALL']}
    assert client_spec['securityContext']['runAsNonRoot'] is True
    assert all(name in ('memory', 'cpu') for name in client['resources']['limits'])
    for pod in (spec, client_spec):
        assert group in pod['securityContext']['supplementalGroups']
        assert not any(pod.get(name) for name in ('hostNetwork', 'hostPID', 'hostIPC'))
    for container in (daemon, client):
        assert container['securityContext']['allowPrivilegeEscalation'] is False
        assert 'privileged' not in container['securityContext']


def test_grace():
    """kubernetes.yaml: the daemon has more time to stop than drain_ms"""
    assert next(pods())[0]['terminationGracePeriodSeconds'] >= DRAIN_SECONDS + 10


def main():
    tests = [test for name, test in globals().items() if name.startswith('test_')]
    print(f'1..{len(tests)}')
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f'ok {number} - {test.__doc__}', flush=True)
        except Skip as skip:
            print(f'ok {number} - {test.__doc__} # SKIP {skip}', flush=True)
        except Exception as error: # pylint: disable=broad-except
            failed += 1
            print(f'not ok {number} - {test.__doc__}')
            print(f'# {type(error).__name__}: {error}', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
