#!/bin/sh
# Prepares a container for systemd, and becomes it. Needs SYS_ADMIN and a cgroup namespace of its own.
set -eu
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  # cgroup v2: Docker mounts it read-only.
  mount -o remount,rw /sys/fs/cgroup
else
  # cgroup v1: mounted again, writable, they show this container's groups only.
  umount -R /sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for controller in systemd memory pids; do
    options=$controller
    [ "$controller" = systemd ] && options=none,name=systemd
    mkdir "/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$controller"
  done
fi
# systemd hands credentials to units by mounts that must be seen everywhere; in a container it leaves that to whoever made it.
mount --make-rshared /
exec /lib/systemd/systemd
