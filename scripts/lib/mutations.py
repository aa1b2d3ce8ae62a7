#!/usr/bin/env python3
"""mutations.py COUNTS [NAME...]: checks that the tests notice errors.

Each tests/mutations/NAME.patch puts one error into the sources:

    # mutation: what is broken, in a few words
    # test: name of the meson test that must fail, and words for its program, such as names of subtests
    --- a/daemon/x.c
    +++ b/daemon/x.c
    @@ ...

It passes if that test fails, crashes or runs out of time with the patch; if there are several "# test:" lines, each of
them. It fails if the test passes all the same, if the patch does not apply or build, or if the test fails without it.
It is skipped where the test is. Writes "PASSED FAILED SKIPPED" to COUNTS.

Tests of the suite rxe, which need the guest, are those whose names begin with rxe_. Where $GRD_GUEST names it
(scripts/test --rxe) only they are looked at, elsewhere only the others. GRD_TESTS_PASS=yes: they have just passed
without mutations.

All of it happens in copies of the project folder below $GRD_BUILDS/mutations. They are kept for the next run, which
brings their files up to date and builds what has changed; only what the tests need is built.
"""
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import time

SOURCE = pathlib.Path(os.environ['GRD_SOURCE'])
BASE = pathlib.Path(os.environ['GRD_BUILDS']) / 'mutations'
IN_GUEST = 'GRD_GUEST' in os.environ
WORKERS = 1 if IN_GUEST else 2
NOTICED = ('FAIL', 'ERROR', 'TIMEOUT')
IGNORED = re.compile(r'\.git|__pycache__|build.*')  # folders


class Mutation:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        self.text, self.tests, self.elsewhere = '', [], []
        for line in path.read_text(encoding='utf-8').split('\n'):
            match = re.match(r'^# (mutation|test): *(.*?) *$', line)
            if match and match.group(1) == 'mutation':
                self.text = match.group(2)
            elif match and match.group(2):
                here = match.group(2).startswith('rxe_') == IN_GUEST
                (self.tests if here else self.elsewhere).append(match.group(2))
            elif not line.startswith('#'):
                break


def call(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding='utf-8', errors='replace', check=False, **options)


def tail(text, lines):
    return '\n'.join(text.rstrip().split('\n')[-lines:])


def files_below(folder):
    """Path from the folder on: path, for each file that belongs to the project."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not IGNORED.fullmatch(name)]
        for name in names:
            path = pathlib.Path(root) / name
            found[path.relative_to(folder)] = path
    return found


class Copy:
    """A copy of the project folder with a build of its own."""

    def __init__(self, number):
        self.source = BASE / f'source{number}'
        self.build = BASE / f'build{number}'
        self.error = None

    def update(self):
        """Makes the files those of the project. What is the same keeps its time: it is not built again."""
        wanted = files_below(SOURCE)
        for name, path in files_below(self.source).items():
            if name not in wanted:
                path.unlink()
        for name, path in wanted.items():
            target = self.source / name
            if target.is_file() and target.read_bytes() == path.read_bytes() and \
                    target.stat().st_mode == path.stat().st_mode:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            shutil.copymode(path, target)

    def make(self, tests):
        """Sets the copy up and builds what the tests need; a folder of an earlier run that fails is made anew."""
        fresh = not (self.build / 'build.ninja').exists()
        if fresh:
            shutil.rmtree(self.build, ignore_errors=True)
        self.update()
        if fresh:
            done = call('meson', 'setup', '--buildtype=debugoptimized', str(self.build), str(self.source))
        else:
            done = call('ninja', '-C', str(self.build), 'build.ninja')
        if done.returncode == 0:
            done = self.make_targets(tests)
        if done.returncode != 0 and not fresh:
            shutil.rmtree(self.build)
            return self.make(tests)
        self.error = done.stdout if done.returncode else None
        return self

    def make_targets(self, tests):
        """Builds what these tests depend on."""
        info = self.build / 'meson-info'
        targets = {target['id']: target['filename'] for target in json.loads((info / 'intro-targets.json').read_text())}
        names = {test.split()[0] for test in tests}
        files = {os.path.relpath(file, self.build) for test in json.loads((info / 'intro-tests.json').read_text())
                 if test['name'] in names for target in test['depends'] for file in targets[target]}
        return call('ninja', '-C', str(self.build), *(sorted(files) or ['build.ninja']))

    def patch(self, path):
        return call('patch', '-p1', '--fuzz=0', '--no-backup-if-mismatch', '--batch', '-i', str(path), cwd=self.source)

    def run_test(self, *arguments):
        """Runs "meson test"; where it has noted the results."""
        if IN_GUEST:
            results = BASE / 'guest'
            done = call(SOURCE / 'scripts/lib/boot-guest', self.build, results, *arguments,
                        env={**os.environ, 'GRD_SOURCE': str(self.source)})
            if done.returncode:
                print(tail(done.stdout, 30), flush=True)
            return results / 'testlog.json'
        log = self.build / 'meson-logs' / 'testlog.json'
        log.unlink(missing_ok=True)
        call('meson', 'test', '-C', str(self.build), '--no-rebuild', *arguments)
        return log

    def test(self, test):
        """(OK, FAIL, ERROR, TIMEOUT, SKIP, or MISSING; the first subtest that failed)"""
        name, *words = test.split()
        arguments = [f'--test-args={" ".join(words)}'] if words else []
        log = self.run_test(*arguments, name)
        results = [json.loads(line) for line in log.open(encoding='utf-8')] if log.exists() else []
        if words and results:  # each word names a subtest or more
            plan = re.search(r'^1\.\.(\d+)', results[0].get('stdout', ''), re.MULTILINE)
            if plan and int(plan.group(1)) < len(words):
                return 'MISSING', ''
        for result in results:
            if result['result'] not in ('OK', 'SKIP', 'EXPECTEDFAIL'):
                failed = re.search(r'^not ok \d+ *-? *(?:\S*/)?(.*)$', result.get('stdout', ''), re.MULTILINE)
                return result['result'], failed.group(1) if failed else result['result'].lower()
        return results[0]['result'] if results else 'MISSING', ''


def borrow(copies, work):
    copy = copies.get()
    try:
        return work(copy)
    finally:
        copies.put(copy)


def check(copy, mutation):
    """Returns (passed or failed, text)."""
    done = copy.patch(mutation.path)
    if done.returncode:
        return 'failed', f'does not apply:\n{done.stdout}'
    done = copy.make_targets(mutation.tests)
    if done.returncode:
        return 'failed', f'does not build:\n{tail(done.stdout, 15)}'
    lines = []
    for test in mutation.tests:
        result, failed = copy.test(test)
        if result not in NOTICED:
            return 'failed', f'{mutation.text}: not noticed by {test} ({result.lower()})'
        lines.append(f'noticed by {test}: {failed}')
    return 'passed', '\n    '.join([mutation.text, *lines])


def judge(copies, base_results, mutation):
    """Returns (passed, failed or skipped, text, seconds)."""
    start = time.monotonic()
    if not mutation.text or not mutation.tests + mutation.elsewhere:
        return 'failed', 'has no "# mutation:" or no "# test:" line', 0
    if not mutation.tests:
        where = 'without --rxe' if IN_GUEST else 'in the guest: scripts/test --rxe mutations'
        return 'skipped', f'its tests run {where}', 0
    for test in mutation.tests:
        result, failed = base_results[test]
        if result == 'MISSING':
            return 'failed', f'there is no meson test {test}', 0
        if result == 'SKIP':
            return 'skipped', f'{test} is skipped on this machine', 0
        if result != 'OK':
            return 'failed', f'{test} fails without the mutation: {failed}', 0

    def work(copy):
        nonlocal start
        start = time.monotonic()
        try:
            return check(copy, mutation)
        finally:
            copy.update()  # the files as they were, also of a patch that applied in part
    state, text = borrow(copies, work)
    return state, text, time.monotonic() - start


def run(mutations, counts):
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        copies = queue.Queue()
        for copy in pool.map(lambda number: Copy(number).make(tests), range(min(WORKERS, len(mutations)))):
            if copy.error:
                print('  FAILED: the project does not build without mutations')
                print(tail(copy.error, 25))
                counts['failed'] += 1
                return
            copies.put(copy)
        print(f'  copies built: {time.monotonic() - start:.0f} s', flush=True)
        start = time.monotonic()
        if os.environ.get('GRD_TESTS_PASS') == 'yes':
            base_results = {test: ('OK', '') for test in tests}
        else:
            results = pool.map(lambda test: borrow(copies, lambda copy: copy.test(test)), tests)
            base_results = dict(zip(tests, results))
            print(f'  {len(tests)} tests without mutations: {time.monotonic() - start:.0f} s', flush=True)
        judged = [pool.submit(judge, copies, base_results, mutation) for mutation in mutations]
        for mutation, done in zip(mutations, judged):
            state, text, seconds = done.result()
            counts[state] += 1
            print(f'  {state if state != "failed" else "FAILED"} {mutation.name}: {text} ({seconds:.0f} s)', flush=True)


def main():
    counts_file, wanted = sys.argv[1], sys.argv[2:]
    mutations = [Mutation(path) for path in sorted((SOURCE / 'tests' / 'mutations').glob('*.patch'))]
    counts = {'passed': 0, 'failed': 0, 'skipped': 0}
    for name in wanted:
        if not any(name in (mutation.name, mutation.path.name) for mutation in mutations):
            print(f'  FAILED: tests/mutations has no {name}')
            counts['failed'] += 1
    if wanted:
        mutations = [mutation for mutation in mutations if mutation.name in wanted or mutation.path.name in wanted]
    else:
        mutations = [mutation for mutation in mutations if mutation.tests or not mutation.elsewhere]
        if not mutations:
            print('  FAILED: tests/mutations has no *.patch for these tests')
            counts['failed'] += 1
    if mutations:
        run(mutations, counts)
    with open(counts_file, 'w', encoding='utf-8') as file:
        file.write(f'{counts["passed"]} {counts["failed"]} {counts["skipped"]}\n')


main()
