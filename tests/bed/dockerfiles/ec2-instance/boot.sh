# The boot of an instance: /etc/bed/environ describes the instance, and /etc/bed/script has a test's
# commands to run before sshd.
set -u
# As PID 1, this shell reaps orphans; `poweroff` ends it.
trap 'exit 0' TERM
. /etc/bed/environ

# Programs use the default route to find out their own address. Packets that take the route are
# rejected here, and dropped by Docker.
private=$(ip -o route get "${API%:*}" | sed 's/.* dev \([^ ]*\).*/\1/')
ip route replace default via "${API%:*}" dev "$private"
iptables -A OUTPUT -o "$private" ! -d "$NETWORK" -j REJECT
# Docker adds the public address to /etc/hosts; at EC2, an instance does not have its public
# address.
cp /etc/hosts /tmp/hosts && grep -v '^198\.18\.' /tmp/hosts > /etc/hosts

# AWS's link-local addresses: the metadata service, where the API answers too, and the resolver.
iptables -t nat -A OUTPUT -d 169.254.169.254 -p tcp --dport 80 -j DNAT --to-destination "$API"
iptables -t nat -A OUTPUT -d 169.254.169.253 -p udp --dport 53 -j DNAT --to-destination "$API"
printf 'search us-west-2.compute.internal\nnameserver 169.254.169.253\n' > /etc/resolv.conf

mkdir -p /run/sshd /home/ubuntu/.ssh
rm -f /run/cloud-init-done
[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
cp /etc/bed/authorized_keys /home/ubuntu/.ssh/authorized_keys
chown -R ubuntu: /home/ubuntu/.ssh
chmod -R go= /home/ubuntu/.ssh

if [ "$DOCKER" = yes ]; then
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
  rm -f /var/run/docker.pid
  # This bridge has another address than the bed's; training containers use the instance's network.
  dockerd --bip 172.30.250.1/24 --insecure-registry "$REGISTRY" > /var/log/dockerd.log 2>&1 &
fi

# NVIDIA's driver brings nvidia-smi, which lists as many GPUs as the instance's type has.
if [ "$GPUS" != 0 ]; then
  visible=$(seq -s, -f GPU-bed-%g 0 $((GPUS - 1)))
  printf '#!/bin/sh\nNVIDIA_VISIBLE_DEVICES=%s exec /opt/bed/nvidia-smi "$@"\n' "$visible" > /usr/local/bin/nvidia-smi
  chmod +x /usr/local/bin/nvidia-smi
fi

# The script may set SSHD=no, as if the AMI were broken, or wait.
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
