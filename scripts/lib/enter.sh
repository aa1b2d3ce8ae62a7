# shellcheck shell=bash
# Runs a command in the prepared environment and asserts that nothing is left behind. Sourced by the scripts.
#
# Inside: the Debian 13 tree, or the host's own root on Debian 13 and newer; fresh /tmp, /run and /dev/shm; the
# project folder at its own path, read-only; process and mount namespaces of its own; the host's network.

# shellcheck source=scripts/lib/setup.sh
. "$GRD_LIB/setup.sh"

# begin_run: the start of what end_run asserts. Every process of the run carries GRD_RUN_ID in its environment.
begin_run() {
  GRD_RUN_ID=$(date +%H%M%S)-$$
  GRD_RUN=$GRD_CACHE/run/$GRD_RUN_ID
  export GRD_RUN_ID GRD_RUN
  mkdir -p "$GRD_RUN"
  find "$GRD_CACHE/run" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -rf {} + # of runs that were killed
  trap 'rm -rf "$GRD_RUN"' EXIT
  our_mounts >"$GRD_RUN/mounts"
  running_services >"$GRD_RUN/services"
}

# enter [--rw] CMD...: runs CMD inside, in the project folder.
enter() {
  local access=ro rc=0
  if [ "$1" = --rw ]; then access=rw; shift; fi
  make_control_groups
  in_namespace 10 bash "$GRD_LIB/stage" "$GRD_MODE" "$access" "$(control_groups | tr '\n' ' ')" "$@" || rc=$?
  remove_control_groups
  return $rc
}

# end_run: names everything that is left of the run, inside and outside; false if there is something.
end_run() {
  local left=$GRD_RUN/left
  touch "$left"
  our_mounts | diff "$GRD_RUN/mounts" - | sed -n 's/^> /mount on the host: /p' >>"$left" || true
  running_services | diff "$GRD_RUN/services" - | sed -n 's/^> /service on the host: /p' >>"$left" || true
  our_processes >>"$left"
  control_groups | while read -r group; do [ ! -d "$group" ] || echo "control group: $group"; done >>"$left"
  if grep -qsF "$GRD_POLICY_MARK" $GRD_POLICY; then echo "file: $GRD_POLICY" >>"$left"; fi
  [ -s "$left" ] || return 0
  warn "left behind:"
  sed 's/^/  /' "$left" >&2
  return 1
}

# Only below our own folders: somebody else may mount something meanwhile.
our_mounts() {
  awk -v a="$GRD_TREE" -v b="$GRD_CACHE/mnt" -v c="$GRD_SOURCE" \
    'index($5, a) == 1 || index($5, b) == 1 || index($5, c) == 1 { print $5 }' /proc/self/mountinfo | sort
}

our_processes() {
  local file pid
  for file in $(env -u GRD_RUN_ID -u GRD_RUN grep -lzsxF "GRD_RUN_ID=$GRD_RUN_ID" /proc/[0-9]*/environ || true); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    printf 'process on the host: %s %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null || true)"
  done
}

# Services that our packages bring.
running_services() {
  [ -d /run/systemd/system ] || return 0
  systemctl list-units --no-legend --plain --state=active 'valkey*' 2>/dev/null | awk '{ print $1 }' | sort
}

# take_build_lock: two runs of the same project folder must not build in the same place.
take_build_lock() {
  mkdir -p "$GRD_BUILDS"
  lock 7 "$GRD_BUILDS/lock" '' "another run with this project folder"
  printf '%s\n' "$GRD_SOURCE" >"$GRD_BUILDS/source"
  # What was built with other packages is built anew.
  local stamp folder
  stamp="$GRD_MODE $(tree_stamp)"
  if [ "$(cat "$GRD_BUILDS/stamp" 2>/dev/null)" != "$stamp" ]; then
    find "$GRD_BUILDS" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
    printf '%s\n' "$stamp" >"$GRD_BUILDS/stamp"
  fi
  # Builds of project folders that are gone.
  for folder in "$GRD_CACHE"/build/*/; do
    if [ -e "$folder/source" ] && [ ! -d "$(cat "$folder/source")" ]; then rm -rf "$folder"; fi
  done
}
