# Functions of the scripts in deploy/; sourced, not run. The caller sets -euo pipefail and is in the project's root.

# Debian and Ubuntu packages, by purpose.
build_packages=(binutils g++ git libcurl4-openssl-dev libjq-dev libssl-dev libsystemd-dev libtomlplusplus-dev pkg-config zlib1g-dev)
build_packages+=(libncurses6 libxml2)  # libraries of the Swift toolchain
test_packages=(curl make openssl python3 python3-dev python3-venv)
test_packages+=(node-typescript nodejs)
test_packages+=(nginx)  # a buffering proxy
test_packages+=(systemd-journal-remote)  # writes journals
test_packages+=(nats-server)  # the brokers of a fleet
test_packages+=(dbus-daemon fish groff-base man-db systemd zsh)  # programs that read the installed files
page_packages=(chromium prometheus)  # foreign readers of the page and of the metrics
upstream_packages=(libnginx-mod-nchan nginx)  # a foreign upstream
package_packages=(binutils dpkg-dev libpython3-dev make)
image_packages=(podman runc)
container_packages=(debian-archive-keyring mmdebstrap systemd-container)

say() { printf '%s\n' "${0##*/}: $*" >&2; }

die() {
  say "$*"
  exit 1
}

# Prints the comment at the head of the calling script as its help text.
print_help() { sed -n '2,/^[^#]/ { s/^# \{0,1\}//p }' "deploy/${0##*/}"; }

is_root() { [[ $EUID -eq 0 ]]; }

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# need_packages NAME…: as root installs the missing packages; otherwise lists them and exits.
need_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu system; installed packages are not checked (required: $*)"
    return
  fi
  for name; do is_installed "$name" || missing+=("$name"); done
  [[ ${#missing[@]} -eq 0 ]] && return
  is_root || die "missing packages; install them with: sudo apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  apt-get -qq update
  # Only a program of this package is required, not its service.
  if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then systemctl --quiet mask prometheus; fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
}

need_swift() {
  [[ -x /opt/swift/usr/bin/swift ]] && PATH=$PATH:/opt/swift/usr/bin
  command -v swift >/dev/null || die "no Swift on PATH or in /opt/swift; install 6.2 or later from https://swift.org/install"
}

# A release build: Swift's libraries are linked in, those of the system are not, so the programs run on machines without
# Swift. Linked by lld: the default linker, gold, prints a warning about a function in Swift's own libraries (mktemp). The
# programs contain no path of this machine, also none of the compiler's cache, so that two builds of one commit are equal.
swift_build_release=(swift build --configuration release --static-swift-stdlib --disable-local-rpath -Xswiftc -use-ld=lld)
swift_build_release+=(-Xswiftc -file-prefix-map -Xswiftc "$PWD=." -Xcc "-ffile-prefix-map=$PWD=.")
swift_build_release+=(-Xswiftc -Xfrontend -Xswiftc -no-clang-module-breadcrumbs)

# build_release [--product NAME]: builds the programs, side by side, or one of them.
build_release() {
  local commit
  commit=$(git describe --always --dirty=+ --exclude='*' 2>/dev/null) || commit=''
  STREAMD_TESTS='' STREAMD_COMMIT=$commit "${swift_build_release[@]}" "$@"
}

release_folder=.build/release
