#!/usr/bin/env bash
# Runs README's commands in a fresh system of its own, from the tree as it is committed. Needs root and debootstrap.
#
#   cmake/try_system.sh trixie                    ./quickstart.sh, ./test.sh and pip install . in a new Debian 13
#   cmake/try_system.sh bookworm                  the same in a new Debian 12
#   cmake/try_system.sh trixie 'COMMAND'          COMMAND, in the clone, in the system as an earlier call left it
#
# ARLAB_SYSTEMS is the folder of the systems (default: /var/tmp/arlab-systems); remove SUITE there to begin with a fresh one.
# The mirror is that of this machine's own apt sources, Debian's where it has none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

suite=${1-}
case $suite in
  bookworm | trixie) ;;
  *) die "cmake/try_system.sh '$suite': allowed are bookworm (Debian 12) and trixie (Debian 13)" ;;
esac
[[ $(id -u) == 0 ]] || die "a new system is made with chroot: run this as root"
command -v debootstrap >/dev/null || die "debootstrap is not here: apt-get install debootstrap"
both='./quickstart.sh && ./test.sh && python3 -m venv /tmp/package && time /tmp/package/bin/pip install --quiet . &&
  cd / && /tmp/package/bin/arlab list algorithms && /tmp/package/bin/python -c "import arlab; print(arlab.__version__)"'
command=${2-$both}

root=${ARLAB_SYSTEMS:-/var/tmp/arlab-systems}/$suite
if [[ -z ${2-} || ! -e $root/root/arlab ]]; then
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  mirror=$(sed -En 's/^(URIs:|deb( \[[^]]*\])?) +([^ ]+\/debian)\/?( .*)?$/\3/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} \
    2>/dev/null | head -n 1 || true)
  say "making a new $suite in $root"
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 ||
    die "debootstrap failed; $root.log says why"
  # The machine reaches its registries with these: certificates and settings of apt and pip.
  mkdir -p "$root/usr/local/share/ca-certificates" "$root/etc/ssl/certs"
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
  for file in /etc/pip.conf /etc/resolv.conf /etc/hosts; do
    if [[ -e $file ]]; then cp -L "$file" "$root$file"; fi
  done
  git clone --quiet --no-hardlinks . "$root/root/arlab"
fi
say "$suite, $(git -C "$root/root/arlab" log -1 --format=%h): $command"
# Namespaces of its own, so that nothing stays mounted or running, however this ends.
exec unshare --mount --pid --fork --kill-child bash -c '
  mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/run" &&
  exec chroot "$0" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    ${PIP_CERT:+PIP_CERT="$PIP_CERT"} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} PIP_DEFAULT_TIMEOUT=180 \
    ${https_proxy:+https_proxy="$https_proxy"} ${http_proxy:+http_proxy="$http_proxy"} \
    bash -c "cd /root/arlab && $1"' "$root" "$command" </dev/null
