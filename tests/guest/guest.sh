#!/bin/sh
# Runs a command as root on a mainline kernel with cgroup v2: boots Debian's kernel in QEMU with this machine's own / shared
# read-only (writes go to memory and vanish), prints the command's output and ends with its exit code.
#
#   sh guest.sh 'COMMAND'      in the present directory, cgroup v2 mounted bare
#   SYSTEMD=1 sh guest.sh ...  as a systemd unit with Delegate=yes, systemd being PID 1
#   GUEST_ARGS, GUEST_LIMIT    more QEMU arguments (a later -smp wins); seconds until the guest is given up (1800)
#   GUEST_CACHE                where the kernel and the initrd are kept (build/guest)
#
# 124: the guest was given up at GUEST_LIMIT, with what it had printed.  125: it gave no result.  126: a tool is missing, and which.
set -e

missing=
for tool in qemu-system-x86_64 busybox cpio xz apt-get dpkg-deb; do
  command -v $tool > /dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
  echo "guest: missing:$missing. As root: apt-get install --no-install-recommends qemu-system-x86 busybox-static cpio xz-utils" >&2
  exit 126
fi
[ "$(id -u)" = 0 ] || { echo "guest: needs root, so that the guest may read every file of /" >&2; exit 126; }

cache=${GUEST_CACHE:-build/guest}
mkdir -p "$cache"
cache=$(realpath "$cache")
modules='netfs 9pnet 9pnet_virtio 9p overlay virtio_blk'

fetch_kernel() {
  package=$(apt-cache depends linux-image-6.12-amd64 2> /dev/null | awk '/Depends: linux-image/ { print $2; exit }')
  [ -n "$package" ] || { echo "guest: apt knows no linux-image-6.12-amd64; run apt-get update first" >&2; exit 126; }
  (cd "$cache" && apt-get download -q -o Acquire::Retries=5 "$package" >&2 && dpkg-deb -x "$package"_*.deb kernel && rm "$package"_*.deb)
  mkdir -p "$cache/modules"
  for module in $modules; do
    xz -dc "$(find "$cache/kernel" -name "$module.ko.xz")" > "$cache/modules/$module.ko"
  done
  cp "$cache"/kernel/boot/vmlinuz-* "$cache/vmlinuz"
  rm -rf "$cache/kernel"
}

build_initrd() {
  root=$cache/initrd
  rm -rf "$root"
  mkdir -p "$root/bin"
  cp "$(command -v busybox)" "$root/bin/busybox"
  cp -r "$cache/modules" "$root/modules"
  { echo '#!/bin/busybox sh'; echo "modules='$modules'"; cat "$(dirname "$0")/init.sh"; } > "$root/init"
  chmod 755 "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$cache/initrd.new"
  rm -rf "$root"
  mv "$cache/initrd.new" "$cache/initrd.gz"
}

[ -s "$cache/vmlinuz" ] || fetch_kernel
[ "$cache/initrd.gz" -nt "$(dirname "$0")/init.sh" ] || build_initrd

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%s\n' "cd '$PWD'" "$1" > "$out/command"
echo 'sh /run/out/command; echo $? > /run/out/code; sync' > "$out/run"
cat > "$out/guest.service" << 'UNIT'
[Unit]
DefaultDependencies=no
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
Delegate=yes
StandardOutput=file:/run/out/log
StandardError=inherit
ExecStart=/bin/sh /run/out/run
UNIT

# Emulated on one host thread: several at once have panicked while the guest patches its own code, and are no faster.
# On a crowded host the emulated timer ticks late; without no_timer_check the kernel takes it for broken and panics.
# shellcheck disable=SC2086 # GUEST_ARGS are several words
timeout --foreground -k 5 "${GUEST_LIMIT:-1800}" qemu-system-x86_64 -M pc -accel tcg,thread=single,tb-size=256 -cpu max \
  -smp 2 -m 1024 -nodefaults -display none -serial "file:$out/console" -no-reboot \
  -kernel "$cache/vmlinuz" -initrd "$cache/initrd.gz" -device virtio-rng-pci \
  -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr init_on_alloc=0 audit=0 ${SYSTEMD:+mode=systemd}" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$out,mount_tag=out,security_model=none" $GUEST_ARGS < /dev/null > "$out/qemu" 2>&1 && ended=0 || ended=$?

if [ ! -s "$out/code" ]; then
  cat "$out/log" 2> /dev/null || true
  case $ended in
    124 | 137)
      echo "guest: given up after ${GUEST_LIMIT:-1800} s; the last of its console:" >&2
      tail -n 20 "$out/console" >&2 || true
      exit 124
      ;;
  esac
  echo "guest: no result; the last of its console:" >&2
  tail -n 20 "$out/qemu" "$out/console" >&2 || true
  exit 125
fi
cat "$out/log"
exit "$(cat "$out/code")"
