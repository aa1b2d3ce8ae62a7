# shellcheck shell=bash
# Private namespaces, so that nothing can be left behind: mounts and processes made inside end with the run,
# even after kill -9 of the script. Sourced.

# in_namespace SECONDS CMD...: runs CMD as process 1 of fresh mount and process namespaces. Ctrl-C and TERM give what
# is inside SECONDS to end by itself, then it is killed; the exit code is then 130 or 143.
in_namespace() {
  local pid rc=0 stopped='' grace=$1
  shift
  # setpriv: if this script is killed, the kernel kills unshare, whose end kills process 1 and so all the rest.
  # env: commands in the background start with Ctrl-C ignored; and the terminal stays standard input.
  setpriv --pdeathsig KILL env --default-signal=INT,QUIT \
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@" <&0 &
  pid=$!
  trap 'stopped=INT; stop_namespace $pid $grace' INT
  trap 'stopped=TERM; stop_namespace $pid $grace' TERM HUP
  while :; do
    rc=0
    wait "$pid" 2>/dev/null || rc=$?
    kill -0 "$pid" 2>/dev/null || break
  done
  trap - INT TERM HUP
  case $stopped in
    INT) return 130 ;;
    TERM) return 143 ;;
  esac
  return $rc
}

stop_namespace() {
  local children=
  if [ "$2" -eq 0 ]; then
    kill -KILL "$1" 2>/dev/null || true
    return
  fi
  read -r children 2>/dev/null <"/proc/$1/task/$1/children" || true
  # shellcheck disable=SC2086
  [ -z "$children" ] || kill -TERM $children 2>/dev/null || true
  # The guard must not outlive the run: it ends as soon as the namespace does.
  (
    trap '' INT TERM HUP
    for ((i = 0; i < $2 * 10; i++)); do
      kill -0 "$1" 2>/dev/null || exit 0
      env -u GRD_RUN_ID sleep 0.1 # not a process of the run, see end_run
    done
    kill -KILL "$1" 2>/dev/null
  ) </dev/null >/dev/null 2>&1 &
}

# control_groups: the folders for control groups of this run (none where that file system is read-only).
# systemd-nspawn makes groups below its own; in one of ours they cannot collide and are removed with it.
control_groups() {
  local id controllers path base
  while IFS=: read -r id controllers path; do
    case $id:$controllers in
      0:) base=/sys/fs/cgroup; [ ! -d /sys/fs/cgroup/unified ] || base=/sys/fs/cgroup/unified ;;
      *:name=systemd) base=/sys/fs/cgroup/systemd ;;
      *) continue ;;
    esac
    [ "$path" != / ] || path=
    [ ! -w "$base$path/cgroup.procs" ] || printf '%s\n' "$base$path/glide-rdmad-$GRD_RUN_ID"
  done </proc/self/cgroup
}

make_control_groups() {
  local group
  for group in $(control_groups); do
    # Left by runs that were killed; a group with a process in it cannot be removed, so this is safe.
    find "$(dirname "$group")" -maxdepth 1 -type d -name 'glide-rdmad-*' -mmin +5 \
      -exec find {} -depth -type d -exec rmdir {} \; \; 2>/dev/null || true
    mkdir "$group" 2>/dev/null || true
  done
}

remove_control_groups() {
  local group
  for group in $(control_groups); do
    for _ in {1..20}; do # the kernel needs a moment after the last process
      [ -d "$group" ] || break
      find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      [ -d "$group" ] && sleep 0.1
    done
  done
}
