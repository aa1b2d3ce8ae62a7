#!/usr/bin/env python3
"""What glide-rdmad-client(3) quotes stands, line by line, in one of the examples, which are compiled and run.

Usage: test_client_manual.py SOURCE        TAP on standard output
"""
import glob
import os
import re
import sys
import textwrap

source = sys.argv[1]
with open(os.path.join(source, 'docs/glide-rdmad-client.3.scd'), encoding='utf-8') as file:
    page = file.read()
page = page[page.index('\n# QUEUES'):page.index('\n# ERRORS')] + page[page.index('\n# KINDS OF MEMORY'):
                                                                      page.index('\n# THREADS')]


def plain(text):
    """Without indentation, which differs: the page has tabs, and quotes parts of functions."""
    return '\n'.join(line.strip() for line in textwrap.dedent(text).strip().splitlines())


def quoted_in(block, examples):
    return [name for name, text in examples.items() if plain(block) in text]


examples = {}
for path in glob.glob(os.path.join(source, 'client/examples/*.*')):
    with open(path, encoding='utf-8') as file:
        examples[os.path.basename(path)] = plain(file.read())
blocks = re.findall(r'^```\n(.*?)^```$', page, flags=re.M | re.S)
print(f'1..{len(blocks) + 1}')
failed = 0
for number, block in enumerate(blocks, 1):
    found = quoted_in(block, examples)
    failed += not found
    print(f'{"ok" if found else "not ok"} {number} - {found[0] if found else repr(block[:60]) + " is in no example"}')
named = set(re.findall(r'_(\w+\.(?:c|py))_', page.replace('\\_', '_')))
unknown, missing = named - set(examples), set(examples) - named - {'meson.build'}
failed += bool(unknown or missing)
print(f'{"not ok" if unknown or missing else "ok"} {len(blocks) + 1} - every example is named'
      f'{f": not {sorted(missing)}, but {sorted(unknown)}" if unknown or missing else ""}')
sys.exit(1 if failed else 0)
