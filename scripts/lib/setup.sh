# shellcheck shell=bash
# Makes a machine ready: packages on Debian 13 and newer, a Debian 13 tree elsewhere. Sourced.

# shellcheck source=scripts/lib/mirror.sh
. "$GRD_LIB/mirror.sh"
# shellcheck source=scripts/lib/namespace.sh
. "$GRD_LIB/namespace.sh"

GRD_POLICY=/usr/sbin/policy-rc.d
GRD_POLICY_MARK='# glide-rdmad scripts/setup: removed when the installation ends'

packages() { sed 's/#.*//' "$GRD_SOURCE/scripts/packages.txt" | tr -s ' \n' '\n' | sed '/^$/d'; }

# Changes with the package list and with the recipe.
tree_stamp() {
  { packages; cat "$GRD_LIB/make-tree"; } | sha256sum | cut -c1-16
}

# Sets GRD_MODE to host or tree.
choose_mode() {
  local ID='' VERSION_ID='' PRETTY_NAME='this system'
  # shellcheck disable=SC1091
  [ ! -r /etc/os-release ] || . /etc/os-release
  command -v apt-get >/dev/null || die "needs Debian or Ubuntu (apt-get): $PRETTY_NAME is neither"
  GRD_MODE=tree
  # Debian's testing and unstable have no VERSION_ID.
  if [ "$ID" = debian ] && [ "${VERSION_ID%%.*}" != "" ] && [ "${VERSION_ID%%.*}" -ge 13 ]; then GRD_MODE=host; fi
  if [ "$ID" = debian ] && [ -z "$VERSION_ID" ]; then GRD_MODE=host; fi
  if [ "${GLIDE_RDMAD_TREE:-}" = yes ]; then GRD_MODE=tree; fi
  GRD_OS=$PRETTY_NAME
  export GRD_MODE
}

# setup: quick when everything is there. Says what it does.
setup() {
  choose_mode
  mkdir -p "$GRD_CACHE/log" "$GRD_CACHE/mnt"
  if grep -qsF "$GRD_POLICY_MARK" $GRD_POLICY; then # another installation's, or left by one that was killed
    lock 8 "$GRD_CACHE/setup.lock" '' "another installation"
    policy_end
    exec 8>&-
  fi
  if [ "$GRD_MODE" = host ]; then setup_host; else setup_tree; fi
}

# ---- packages of the host

missing_packages() {
  local have name
  have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p' || true)
  for name; do
    case $'\n'$have$'\n' in *$'\n'"$name"$'\n'*) ;; *) printf '%s\n' "$name" ;; esac
  done
}

# Services must not start because a package came. A policy that somebody else wrote stays as it is.
policy_begin() {
  policy_end # one of ours that is still there was left by a run that was killed
  [ ! -e $GRD_POLICY ] || return 0
  trap policy_end EXIT
  printf '#!/bin/sh\n%s\nexit 101\n' "$GRD_POLICY_MARK" >$GRD_POLICY
  chmod 755 $GRD_POLICY
}

policy_end() {
  if grep -qsF "$GRD_POLICY_MARK" $GRD_POLICY; then rm -f $GRD_POLICY; fi
}

apt_run() {
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

# install_packages PACKAGE...: those that are missing, without recommended ones.
install_packages() {
  lock 8 "$GRD_CACHE/setup.lock" '' "another installation"
  policy_end
  local had_valkey=
  dpkg-query -W valkey-server >/dev/null 2>&1 && had_valkey=yes
  # TERM waits until apt is done: half an installation is worse, and the policy must go. Ctrl-C reaches apt itself.
  trap 'exit 143' TERM HUP
  (
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    policy_begin
    logged "$GRD_CACHE/log/apt-update.log" "package lists" apt_run -o APT::Update::Error-Mode=any update ||
      say "  not every package source answers: going on with what is known"
    logged "$GRD_CACHE/log/apt-install.log" "packages" apt_run install -y --no-install-recommends "$@"
  ) || die "the packages could not be installed: is the package mirror reachable, and is the disk full? (logs: $GRD_CACHE/log)"
  trap - TERM HUP
  # Its package enables the service for the next boot. Nobody asked for a server.
  if [ -z "$had_valkey" ] && [ -e /lib/systemd/system/valkey-server.service ]; then
    systemctl disable --quiet valkey-server.service 2>/dev/null || true
    say "  valkey-server is installed as a program only: its service is disabled"
  fi
  exec 8>&-
}

setup_host() {
  local missing
  # shellcheck disable=SC2046 # names have no blanks
  missing=$(missing_packages $(packages) | tr '\n' ' ')
  GRD_TREE_ROOT=/
  export GRD_TREE_ROOT
  if [ -z "$missing" ]; then
    say "Setup: $GRD_OS has every package."
    return
  fi
  say "Setup: $GRD_OS. Installing what building and testing need (list and reasons: scripts/packages.txt):"
  say "  $missing"
  # shellcheck disable=SC2086
  install_packages $missing
}

# ---- the tree

# Sets GRD_TREE_ROOT and holds a shared lock on the tree (descriptor 9) for as long as this script runs.
setup_tree() {
  local stamp
  stamp=$(tree_stamp)
  GRD_TREE_ROOT=$GRD_TREE
  export GRD_TREE_ROOT
  lock 9 "$GRD_TREE.lock" -s "another run that makes the Debian 13 tree"
  if ! tree_ready "$stamp"; then
    exec 9>&-
    lock 9 "$GRD_TREE.lock" '' "runs that use the Debian 13 tree"
    tree_ready "$stamp" || make_tree "$stamp"
    flock -s 9
  fi
  say "Setup: $GRD_OS is older than Debian 13: working in the Debian 13 tree $GRD_TREE."
}

tree_ready() { [ "$(cat "$GRD_TREE/etc/glide-rdmad-tree" 2>/dev/null)" = "$1" ]; }

make_tree() {
  local stamp=$1 new="$GRD_TREE.new.$$" mirror free need='' rc start=$SECONDS
  if [ -d "$GRD_TREE" ]; then
    say "Setup: the package list or the recipe has changed: making a new Debian 13 tree."
  else
    say "Setup: $GRD_OS is older than Debian 13: making a Debian 13 tree in $GRD_TREE (once, one or two minutes)."
  fi
  free=$(df -Pk "$GRD_CACHE" | awk 'NR == 2 { print int($4 / 1024) }')
  [ "$free" -ge 4000 ] || die "needs 4 GB in $GRD_CACHE, there are $free MB (GLIDE_RDMAD_CACHE names another folder)"
  rm -rf --one-file-system "$GRD_TREE".new.* "$GRD_TREE".old.* # of runs that were interrupted

  [ -x /usr/sbin/debootstrap ] || need="debootstrap"
  # Ubuntu does not bring the keys that Debian's packages are signed with.
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need="$need debian-archive-keyring"
  if [ -n "$need" ]; then
    say "  on this host: installing $need (makes the tree)"
    # shellcheck disable=SC2086
    install_packages $need
  fi

  mirror=$(choose_mirror)
  say "  base system and packages (list and reasons: scripts/packages.txt) from ${mirror:-the default mirror}"
  host_apt_settings >"$GRD_CACHE/log/host-apt.conf"
  packages >"$GRD_CACHE/log/packages"
  rc=0
  in_namespace 0 bash "$GRD_LIB/make-tree" "$new" "$GRD_CACHE/log" "$mirror" 9>&- || rc=$?
  if [ $rc -ne 0 ]; then
    rm -rf --one-file-system "$new"
    if [ $rc -gt 128 ]; then
      warn "interrupted"
      exit $rc
    fi
    die "the Debian 13 tree could not be made: is the mirror reachable? DEBIAN_MIRROR=URL names another (logs: $GRD_CACHE/log)"
  fi
  # Only a complete tree ever has the final name.
  printf '%s\n' "$stamp" >"$new/etc/glide-rdmad-tree"
  sync -f "$new"
  [ ! -d "$GRD_TREE" ] || mv "$GRD_TREE" "$GRD_TREE.old.$$"
  mv "$new" "$GRD_TREE"
  rm -rf --one-file-system "$GRD_TREE".old.*
  say "  the tree is ready after $((SECONDS - start)) s"
}
