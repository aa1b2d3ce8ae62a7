# shellcheck shell=bash
# Makes what scripts/test --rxe boots: a layer of packages over the Debian 13 tree, and Debian's kernel; and a server
# with RDMA for it. Sourced.
#
# Nothing of it is needed otherwise, nothing is installed on the host, and there is no image of a disk: the guest sees
# the tree under the layer through 9p, read-only, and keeps what it writes in its memory.

GRD_GUEST=$GRD_CACHE/guest
export GRD_GUEST

guest_packages() { sed 's/#.*//' "$GRD_SOURCE/scripts/packages-guest.txt" | tr -s ' \n' '\n' | sed '/^$/d'; }

# Changes with the tree, the package list and the recipe.
guest_stamp() {
  { tree_stamp; guest_packages; cat "$GRD_LIB/make-guest"; } | sha256sum | cut -c1-16
}

# made_once FD DIR STAMP MB WHAT COMMAND...: DIR, filled by `COMMAND DIR.new LOGS` unless it is there with that STAMP.
# Holds a shared lock on it, descriptor FD, for as long as this script runs. False, with the reason in GRD_WHY, where it
# cannot be made.
made_once() {
  local fd=$1 dir=$2 stamp=$3 need=$4 what=$5 rc=0
  shift 5
  lock "$fd" "$dir.lock" -s "another run that makes $what"
  if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
    eval "exec $fd>&-"
    lock "$fd" "$dir.lock" '' "runs that use $what"
    if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then make_now "$dir" "$stamp" "$need" "$what" "$@" || rc=1; fi
    flock -s "$fd"
  fi
  return $rc
}

make_now() {
  local dir=$1 stamp=$2 need=$3 what=$4 new="$1.new.$$" free rc=0 start=$SECONDS
  shift 4
  free=$(df -Pk "$GRD_CACHE" | awk 'NR == 2 { print int($4 / 1024) }')
  if [ "$free" -lt "$need" ]; then
    GRD_WHY="needs $need MB in $GRD_CACHE, there are $free (GLIDE_RDMAD_CACHE names another folder)"
    return 1
  fi
  say "Setup: making $what in $dir (once, one or two minutes)."
  rm -rf --one-file-system "$dir".new.* # of runs that were interrupted
  in_namespace 0 bash "$@" "$new" "$GRD_CACHE/log" 5>&- 6>&- 9>&- || rc=$?
  rm -rf --one-file-system "$new/work"
  if [ $rc -ne 0 ]; then
    rm -rf --one-file-system "$new"
    [ $rc -le 128 ] || exit $rc
    GRD_WHY="$what cannot be made: is the mirror reachable? (logs: $GRD_CACHE/log)"
    return 1
  fi
  printf '%s\n' "$stamp" >"$new/stamp"
  sync -f "$new"
  rm -rf --one-file-system "$dir"
  mv "$new" "$dir" # only a complete one ever has the final name
  say "  $what: ready after $((SECONDS - start)) s"
}

# setup_guest: after setup, in tree mode, whose shared lock on the tree is held. False, with the reason in GRD_WHY,
# where it cannot be had.
setup_guest() {
  GRD_WHY=
  if [ "$(uname -m)" != x86_64 ]; then
    GRD_WHY="the guest is made for x86_64, this is $(uname -m)"
    return 1
  fi
  mkdir -p "$GRD_CACHE/log"
  guest_packages >"$GRD_CACHE/log/guest-packages"
  made_once 6 "$GRD_GUEST" "$(guest_stamp)" 2000 "the guest with soft-RoCE" "$GRD_LIB/make-guest"
}

# setup_valkey_rdma: after setup_guest. A server that can be reached over RDMA, in the folder GRD_VALKEY_RDMA, which is
# empty, with the reason in GRD_WHY, where it cannot be had: then some tests skip themselves.
setup_valkey_rdma() {
  local stamp
  GRD_VALKEY_RDMA=$GRD_CACHE/valkey-rdma
  stamp=$({ tree_stamp; cat "$GRD_LIB/make-valkey-rdma"; } | sha256sum | cut -c1-16)
  if ! made_once 5 "$GRD_VALKEY_RDMA" "$stamp" 1000 "a valkey-server with RDMA" "$GRD_LIB/make-valkey-rdma"; then
    GRD_VALKEY_RDMA=
    return 1
  fi
  export GRD_VALKEY_RDMA
}
