# What an init system would do: a writable /sys and cgroups for the inner engine, host keys, sshd, dockerd.
set -eu
mount -o remount,rw /sys
for cgroup in /sys/fs/cgroup/*; do [ -d "$cgroup" ] && mount -o remount,rw,bind "$cgroup"; done
ssh-keygen -A
mkdir -p /run/sshd /root/.ssh
/usr/sbin/sshd -o PermitRootLogin=prohibit-password
exec dockerd --bip 172.30.250.1/24 --config-file /etc/docker/daemon.json
