#!/bin/sh
# isolate.sh COMMAND [ARG...]: runs COMMAND with a private root: a mount namespace whose true root is the root we see.
# Run as the first process of fresh mount and process namespaces; everything mounted here ends with it.
#
# The detour over nsenter is for a run inside a chroot, where "/" is no mount: systemd-nspawn and nsenter need one.
# Entering one's own mount namespace leads to its true root; from there our root, kept open as descriptor 9, is bound
# and made the root of the namespace.
set -e
exec 9</
exec nsenter --mount=/proc/self/ns/mnt sh -ec '
  mount --make-rprivate /
  mount --rbind /proc/self/fd/9 /proc/self/fd/9/tmp
  cd /proc/self/fd/9/tmp
  exec 9<&-
  pivot_root . .
  umount -l .
  mount -t proc proc /proc
  cd /
  exec "$@"
' isolated "$@"
