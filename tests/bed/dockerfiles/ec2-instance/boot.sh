# What an instance does when it boots. /etc/bed/environ says what it is, /etc/bed/script what its maker wants done before sshd.
set -u
# As PID 1 it ends children that nobody waits for, and is what `poweroff` ends.
trap 'exit 0' TERM
. /etc/bed/environ

# The link-local address of the metadata service; the AWS API answers at it too.
ip route replace 169.254.169.254/32 via "${API%:*}"
iptables -t nat -A OUTPUT -d 169.254.169.254/32 -p tcp --dport 80 -j DNAT --to-destination "$API"

mkdir -p /run/sshd /home/ubuntu/.ssh
rm -f /run/cloud-init-done
[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
cp /etc/bed/authorized_keys /home/ubuntu/.ssh/authorized_keys
chown -R ubuntu: /home/ubuntu/.ssh
chmod -R go= /home/ubuntu/.ssh

if [ "$DOCKER" = yes ]; then
  mount -o remount,rw /sys
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    # cgroup v2 (not tried): a cgroup whose children get controllers must hold no process of its own.
    mount -o remount,rw /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/boot
    echo $$ > /sys/fs/cgroup/boot/cgroup.procs
    sed 's/^/+/; s/ / +/g' /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control
  else
    for cgroup in /sys/fs/cgroup/*; do [ -d "$cgroup" ] && mount -o remount,rw,bind "$cgroup"; done
  fi
  rm -f /var/run/docker.pid
  # Its bridge is not one of the bed's; training containers use the instance's own network.
  dockerd --bip 172.30.250.1/24 --insecure-registry "$REGISTRY" > /var/log/dockerd.log 2>&1 &
fi

# $SSHD=no leaves it out, as a broken AMI does; a script may also wait.
SSHD=yes
. /etc/bed/script
[ "$SSHD" = no ] || /usr/sbin/sshd -E /var/log/sshd.log
if [ -s /etc/bed/user-data ] && [ ! -e /var/lib/cloud-ran ]; then
  touch /var/lib/cloud-ran
  bash /etc/bed/user-data > /var/log/cloud-init-output.log 2>&1
fi
touch /run/cloud-init-done
while :; do
  sleep infinity &
  wait $!
done
