# shellcheck shell=bash
# What every script here shares: paths, messages, root, locks. Sourced, never run.
#
# Variables (all may be read by tests, which get them in their environment):
#   GRD_SOURCE   the project folder (read-only while tests run)
#   GRD_CACHE    everything that is made: tree, builds, logs
#   GRD_BUILDS   build folders of this project folder, outside of it: a clone may be read-only

set -euo pipefail
umask 022 # a client of another uid must be able to run what is built

GRD_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
GRD_LIB=$GRD_SOURCE/scripts/lib
GRD_CACHE=$(realpath -m -- "${GLIDE_RDMAD_CACHE:-/var/cache/glide-rdmad}")
GRD_TREE=$GRD_CACHE/debian13
GRD_BUILDS=$GRD_CACHE/build/$(printf %s "$GRD_SOURCE" | sha256sum | cut -c1-12)
GRD_NAME=$(basename -- "$0")
export GRD_SOURCE GRD_LIB GRD_CACHE GRD_TREE GRD_BUILDS

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "$GRD_NAME" "$*" >&2; }
die() {
  warn "$*"
  exit 1
}
usage_error() {
  warn "$* (see $GRD_NAME --help)"
  exit 2
}

# Prints the comment block at the head of the calling script, which is its help text.
show_help() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# Packages, mounts and another uid need root. $0 is started again through sudo if we are not.
need_root() {
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null || die "needs root (installs packages, mounts) and there is no sudo: run it as root"
  say "Not root: running it with sudo (it installs packages and mounts)."
  local keep=() name
  for name in GLIDE_RDMAD_CACHE GLIDE_RDMAD_TREE DEBIAN_MIRROR PKG_CONFIG_PATH http_proxy https_proxy no_proxy CI TERM; do
    [ -z "${!name:-}" ] || keep+=("$name=${!name}")
  done
  exec sudo env "${keep[@]}" bash "$GRD_SOURCE/scripts/$GRD_NAME" "$@"
}

# lock FD FILE [-s] [WHAT]: waits for the lock and says so when it has to. The kernel drops it with the process.
lock() {
  local fd=$1 file=$2 shared=${3:-} what=${4:-another run}
  mkdir -p "$(dirname "$file")"
  eval "exec $fd>>\"\$file\""
  # shellcheck disable=SC2086 # $shared is -s or nothing
  flock -n $shared "$fd" && return
  say "Waiting for $what ($file) ..."
  # shellcheck disable=SC2086
  flock -w 3600 $shared "$fd" || die "gave up after an hour of waiting for $file"
}

# Shows the end of a log, indented, on stderr.
show_log() {
  [ -s "$1" ] || return 0
  printf '  --- the last lines of %s\n' "$1" >&2
  tail -n "${2:-25}" "$1" | sed 's/^/  | /' >&2
}

# logged LOG WHAT CMD...: output goes to LOG; shown only when CMD fails.
logged() {
  local log=$1 what=$2 start=$SECONDS rc=0
  shift 2
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null || rc=$?
  if [ $rc -ne 0 ]; then
    warn "$what: failed (exit code $rc)"
    show_log "$log"
    return $rc
  fi
  say "  $what: done in $((SECONDS - start)) s"
}
