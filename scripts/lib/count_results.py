#!/usr/bin/env python3
"""count_results.py RESULTS COUNTS: counts what the runs of meson test in the file RESULTS gave.

RESULTS has lines "log LABEL FILE CODE" (FILE: meson's testlog.json, CODE: exit code of meson test) and
"failed LABEL TEXT". Prints each failure with the end of its output and each skip with its reason; writes
"PASSED FAILED SKIPPED" to COUNTS.

testlog.json and not the JUnit file: the latter lists the subtests of a TAP program that crashed or ran out of time
without the crash, as if all were well.
"""
import json
import re
import sys

TAP_LINE = re.compile(r'^(not )?ok\b\s*(\d*)\s*(?:- )?([^#]*?)\s*(?:#\s*(SKIP|TODO)\w*\s*(.*))?$', re.IGNORECASE)
LINES_SHOWN = 20


class Count:
    def __init__(self):
        self.passed = 0
        self.failures = []  # (name, reason, output)
        self.skips = []     # (name, reason)


def last_lines(text, number=LINES_SHOWN):
    return [line for line in text.rstrip().split('\n') if line][-number:]


def count_test(count, label, test):
    """One meson test: each subtest counts, else the test as one. What the subtests hide counts as one failure."""
    name = f'{label}: {test["name"].split(":", 1)[-1]}'
    output = test.get('stdout', '')
    everything = output + test.get('stderr', '')
    result = test['result']
    code = test.get('returncode', 0)
    subtests = failed = 0
    lines = output.split('\n')
    is_tap = any(re.match(r'^(TAP version \d+|1\.\.\d+)', line) for line in lines)
    for number, line in enumerate(lines if is_tap else []):
        match = TAP_LINE.match(line)
        if not match:
            continue
        bad, index, text, directive, reason = match.groups()
        subtests += 1
        subname = f'{name}: {text or index}'
        directive = (directive or '').upper()
        if directive:
            count.skips.append((subname, reason or directive.lower() + ' without a reason'))
        elif bad:
            failed += 1
            # Its diagnostic lines follow it.
            details = [line]
            for more in lines[number + 1:]:
                if not more.startswith('#') and not more.startswith(' '):
                    break
                details.append(more)
            count.failures.append((subname, 'not ok', details[:LINES_SHOWN]))
        else:
            count.passed += 1
    if result in ('FAIL', 'ERROR', 'TIMEOUT', 'INTERRUPT', 'UNEXPECTEDPASS'):
        if result == 'TIMEOUT':
            why = f'ran out of time after {test["duration"]:.0f} s'
        elif code < 0:
            why = f'killed by signal {-code}'
        elif result == 'UNEXPECTEDPASS':
            why = 'passed but was to fail'
        elif 'Bail out!' in output:
            why = 'gave up: ' + output.split('Bail out!', 1)[1].split('\n', 1)[0].strip()
        elif code:
            why = f'exit code {code}'
        else:
            why = 'its plan and what it ran differ'
        # A program that says "not ok" and exits with 1 has said the same thing twice.
        if not failed or result == 'TIMEOUT' or code < 0 or 'Bail out!' in output:
            count.failures.append((name, why, last_lines(everything)))
        elif len(test.get('stderr', '').strip()) > 0:
            count.failures[-1][2].extend(last_lines(test['stderr']))
    elif result == 'SKIP' and not subtests:
        reason = re.search(r'^1\.\.0\s*#\s*skip\w*\s*(.*)$', output, re.IGNORECASE | re.MULTILINE)
        reason = reason.group(1) if reason else (last_lines(everything, 1) or [''])[0]
        count.skips.append((name, reason or 'without a reason'))
    elif not subtests:
        count.passed += 1


def main():
    count = Count()
    with open(sys.argv[1], encoding='utf-8') as results:
        for line in results:
            kind, label, rest = line.rstrip('\n').split(' ', 2)
            if kind == 'failed':
                count.failures.append((label, rest, []))
                continue
            path, code = rest.rsplit(' ', 1)
            before = len(count.failures)
            with open(path, encoding='utf-8', errors='replace') as log:
                for entry in log:
                    count_test(count, label, json.loads(entry))
            if code != '0' and len(count.failures) == before:
                count.failures.append((label, f'meson test ended with code {code}', []))

    for name, reason in count.skips:
        print(f'  skipped {name}: {reason}')
    for name, why, output in count.failures:
        print(f'  FAILED {name}: {why}')
        for line in output:
            print(f'    | {line}')
    with open(sys.argv[2], 'w', encoding='utf-8') as counts:
        counts.write(f'{count.passed} {len(count.failures)} {len(count.skips)}\n')


main()
