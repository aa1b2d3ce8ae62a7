#!/usr/bin/env python3
"""Fills glide-rdmad.h.in: the public error constants come from the one list in proto/errors.h.

Usage: generate-header.py TEMPLATE ERRORS_H LIMITS_H VERSION OUTPUT
"""
import re
import sys

ENTRY = re.compile(r'X\((\w+),\s*(-\d+),\s*"(\w+)",\s*"([^"]*)"\)')


def define(text, name):
    match = re.search(r'#define\s+' + name + r'\s+(.+)', text)
    if not match:
        sys.exit(f'{name} is not defined')
    return match.group(1).strip()


def errors(text):
    body = text[text.index('#define PROTO_ERRORS(X)'):]
    body = body[:body.index('\n\n')]
    entries = ENTRY.findall(body)
    if len(entries) != body.count('X(') or not entries:
        sys.exit('cannot read every entry of PROTO_ERRORS')
    lines = []
    for position, (symbol, code, _, sentence) in enumerate(entries):
        comma = '' if position == len(entries) - 1 else ','
        lines.append(f'    /* {sentence} */\n    GRD_ERR_{symbol} = {code}{comma}')
    return '\n'.join(lines)


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main(template, errors_h, limits_h, version, output):
    limits = read(limits_h)
    key_bytes = re.sub(r'\s*/\*.*', '', define(limits, 'PROTO_KEY_BYTES'))
    major, minor, patch = version.split('.')[:3]
    values = {
        'ERRORS': errors(read(errors_h)),
        'VERSION': version,
        'VERSION_MAJOR': major,
        'VERSION_MINOR': minor,
        'VERSION_PATCH': patch,
        'KEY_BYTES': key_bytes,
        'DEFAULT_SOCKET': define(limits, 'PROTO_CLIENT_SOCKET').strip('"'),
    }
    text = re.sub(r'@(\w+)@', lambda match: values[match.group(1)], read(template))
    with open(output, 'w', encoding='utf-8') as file:
        file.write(text)


if __name__ == '__main__':
    main(*sys.argv[1:])
