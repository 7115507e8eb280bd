# In place of an init system: a writable /sys and cgroups for the inner containers, host keys, sshd.
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
# Containers must see the mounts of the kubelet and containerd, which start them.
mount --make-rshared /
# The kubelet reads the kernel's log from /dev/kmsg, to report processes killed for memory.
[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11
[ -e /etc/ssh/ssh_host_ed25519_key ] || tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
install -d -m 700 -o ops -g ops /home/ops/.ssh
install -m 600 -o ops -g ops /etc/bed/authorized_keys /home/ops/.ssh/authorized_keys
[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
mkdir -p /run/sshd
/usr/sbin/sshd -o PasswordAuthentication=no
touch /run/booted
# On a host with snapd, a boot starts the services of its snaps.
[ ! -x /usr/bin/snap ] || snap boot > /var/log/snap-boot.log 2>&1 &
trap 'exit 0' TERM
# As the first process, bash reaps orphans.
while :; do sleep 3600 & wait $!; done
