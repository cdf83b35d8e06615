# First process of the guest: the host's / under a memory overlay becomes the root, then the command runs in it.
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /host /rw /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $modules; do
  insmod "/modules/$module.ko"
done
mount -t 9p host /host -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose
mount -t tmpfs rw /rw
mkdir /rw/upper /rw/work
R=/root
mount -t overlay root -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work $R
mount -t proc proc $R/proc
mount -t sysfs sysfs $R/sys
mount --move /dev $R/dev
mount -t tmpfs run $R/run
mkdir -p $R/dev/pts $R/dev/shm $R/run/out $R/run/systemd/system
mount -t devpts devpts $R/dev/pts
mount -t tmpfs shm $R/dev/shm
mount -t 9p out $R/run/out -o trans=virtio,version=9p2000.L,msize=512000
ip link set lo up
if grep -q mode=systemd /proc/cmdline; then
  cp $R/run/out/guest.service $R/run/systemd/system/
  exec switch_root $R /lib/systemd/systemd --unit=guest.service
fi
mount -t cgroup2 cgroup2 $R/sys/fs/cgroup
chroot $R /bin/sh /run/out/run > $R/run/out/log 2>&1
poweroff -f
