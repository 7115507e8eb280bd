# In place of an init system: a writable /sys and cgroups for the inner engine, host keys, sshd,
# dockerd.
set -eu
mount -o remount,rw /sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  # cgroup v2 (not tried): a cgroup whose children get controllers must not contain a process.
  mount -o remount,rw /sys/fs/cgroup
  mkdir -p /sys/fs/cgroup/boot
  echo $$ > /sys/fs/cgroup/boot/cgroup.procs
  sed 's/^/+/; s/ / +/g' /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control
else
  for cgroup in /sys/fs/cgroup/*; do [ -d "$cgroup" ] && mount -o remount,rw,bind "$cgroup"; done
fi
ssh-keygen -A
mkdir -p /run/sshd /root/.ssh
/usr/sbin/sshd -o PermitRootLogin=prohibit-password
exec dockerd --bip 172.30.250.1/24 --config-file /etc/docker/daemon.json
