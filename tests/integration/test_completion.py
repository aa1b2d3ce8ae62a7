"""Completion in bash offers what --help tells, and what the commands take."""
import os
import re
import subprocess

from lib import expect, paths, tap
from lib.stage import Stage

# Options that take a value; the completion has to know them.
WITH_VALUE = re.compile(r'^  (?:-\w, )?(--[\w-]+) [A-Z]+', re.M)


def complete(program, *words, folder='/'):
    """What bash would offer for the last word."""
    script = paths.built('GRD_COMPLETIONS') + '/' + program
    name = {'glide-rdmactl': 'GRD_CTL', 'glide-rdmad': 'GRD_DAEMON'}[program]
    code = r'''source "$1" || exit 1
        function=$(complete -p "$2" | sed 's/.*-F \([^ ]*\).*/\1/')
        shift 2
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        COMP_LINE="$*"
        COMP_POINT=${#COMP_LINE}
        "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"'''
    argv = [paths.program('bash'), '--norc', '-c', code, 'bash', script, program, paths.built(name), *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, cwd=folder,
                          env=paths.environment())
    expect.equal((done.returncode, done.stderr), (0, ''))
    return sorted(line for line in done.stdout.splitlines() if line)


def help_of(variable):
    return subprocess.run([paths.built(variable), '--help'], stdout=subprocess.PIPE, text=True, timeout=100, check=True,
                          env=paths.environment()).stdout


def test_commands(_):
    """glide-rdmactl: all commands, also behind options, and those that begin as the word does"""
    commands = re.findall(r'^  ([a-z][\w-]*) +\S', help_of('GRD_CTL'), flags=re.M)
    expect.holds(len(commands) >= 14 and 'doctor' in commands, commands)
    expect.equal(complete('glide-rdmactl', ''), sorted(commands))
    expect.equal(complete('glide-rdmactl', '--socket', 'put', ''), sorted(commands))
    expect.equal(complete('glide-rdmactl', '--json', 'be'), ['bench'])


def test_options(_):
    """Both programs: all options of --help, and no other"""
    for program, variable in (('glide-rdmactl', 'GRD_CTL'), ('glide-rdmad', 'GRD_DAEMON')):
        told = help_of(variable)
        told = told[told.index('\n  -' if program == 'glide-rdmad' else '\n  --socket'):]
        options = sorted(set(re.findall(r'^ +(?:-\w, )?(--[a-z][\w-]*)', told, flags=re.M)))
        expect.holds(len(options) >= 5, options)
        expect.equal(complete(program, '-'), options)
        expect.equal(complete(program, '--ver'), [option for option in options if option.startswith('--ver')])


def test_values(stage):
    """What an option takes is no command; files are offered where it takes one"""
    options = WITH_VALUE.findall(help_of('GRD_CTL'))
    expect.holds(len(options) > 10, options)
    folder = stage.new_folder()
    with open(os.path.join(folder, 'a file'), 'w', encoding='ascii'):
        pass
    for option in options:
        offered = complete('glide-rdmactl', option, '', folder=folder)
        expect.holds('status' not in offered, f'{option}: {offered}')
        expect.holds('put' in complete('glide-rdmactl', option, '1', ''), f'{option} takes a value')
    for option in ('--socket', '--admin-socket', '--config', '--daemon-program'):
        expect.equal(complete('glide-rdmactl', option, '', folder=folder), ['a file'])
    expect.equal(complete('glide-rdmad', '--config', 'a', folder=folder), ['a file'])


def test_files(stage):
    """put and get: files as the second argument, nothing as the first"""
    folder = stage.new_folder()
    with open(os.path.join(folder, 'value.bin'), 'w', encoding='ascii'):
        pass
    for command in ('put', 'get'):
        expect.equal(complete('glide-rdmactl', command, '', folder=folder), [])
        expect.equal(complete('glide-rdmactl', '--quiet', command, 'key', '', folder=folder), ['value.bin'])
    expect.equal(complete('glide-rdmactl', 'status', '', folder=folder), [])


tap.run(globals(), Stage())
