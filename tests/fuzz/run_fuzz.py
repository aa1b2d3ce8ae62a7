#!/usr/bin/env python3
"""run_fuzz.py PROGRAM FOLDER NAME SECONDS: runs a fuzz target over FOLDER/corpus/NAME, then for SECONDS, and says in
TAP how it went. A crash is shown with its input in base64 and its stack; nothing is left behind.

The inputs are the same each time, as far as the machine gets, so that a run fails for what was changed. $GRD_FUZZ_SEED
chooses others, 0 new ones.
"""
import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LINES_SHOWN = 60


def comment(text):
    for line in text.splitlines():
        print('# ' + line)


def run(program, arguments, temporary):
    # Function names for addresses: clang's own helper where it is installed, else that of binutils.
    helper = shutil.which('llvm-symbolizer') or shutil.which('addr2line') or ''
    options = f'print_stacktrace=1:external_symbolizer_path={helper}'
    environment = dict(os.environ, TMPDIR=temporary, ASAN_OPTIONS='handle_abort=1:detect_leaks=1:' + options,
                       UBSAN_OPTIONS=options)
    return subprocess.run([program, *arguments], cwd=temporary, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          text=True, errors='replace')


def report(number, title, done, artifacts):
    """One line of TAP, and below it what there is to know of a failure."""
    executions = re.findall(r'^stat::number_of_executed_units:\s*(\d+)', done.stdout, re.MULTILINE)
    speed = re.findall(r'^stat::average_exec_per_sec:\s*(\d+)', done.stdout, re.MULTILINE)
    if done.returncode == 0 and executions:
        print(f'ok {number} - {title}: {executions[-1]} executions, {speed[-1]} a second')
        return True
    print(f'not ok {number} - {title}: exit code {done.returncode}')
    for file in sorted(artifacts.iterdir()):
        comment(f'{file.name}, base64:')
        comment(base64.b64encode(file.read_bytes()).decode())
    # What matters comes first: the property or the sanitizer's first line, then the stack.
    lines = done.stdout.splitlines()
    first = next((i for i, line in enumerate(lines)
                  if re.search(r'PROPERTY|ERROR: |runtime error|Assertion', line)), max(0, len(lines) - LINES_SHOWN))
    comment('\n'.join(lines[first:first + LINES_SHOWN]))
    return False


def main():
    program, folder, name, seconds = sys.argv[1:]
    program = os.path.abspath(program)
    folder = Path(folder).resolve()
    corpus = folder / 'corpus' / name
    dictionary = folder / (name + '.dict')
    with tempfile.TemporaryDirectory(prefix='grd-fuzz-') as temporary:
        artifacts, found = Path(temporary, 'artifacts'), Path(temporary, 'found')
        artifacts.mkdir()
        found.mkdir()
        common = [f'-artifact_prefix={artifacts}/', '-timeout=60', '-rss_limit_mb=1024', '-print_final_stats=1']
        if dictionary.exists():
            common.append(f'-dict={dictionary}')
        seeds = sorted(str(file) for file in corpus.iterdir())
        print('1..2', flush=True)
        good = report(1, f'{len(seeds)} inputs of the corpus',
                      run(program, [*common, '-runs=0', str(corpus)], temporary), artifacts)
        sys.stdout.flush()
        if good:
            seed = os.environ.get('GRD_FUZZ_SEED', seconds)
            arguments = [*common, '-seed=' + seed, '-max_total_time=' + seconds, str(found), str(corpus)]
            good = report(2, f'{seconds} s', run(program, arguments, temporary), artifacts)
        else:
            print('ok 2 # SKIP the corpus fails')
    sys.exit(0 if good else 1)


main()
