# What the scripts in deploy/ share; sourced, not run. The caller has set -euo pipefail and stands in the project's root.

# Debian and Ubuntu packages, by what they are for.
build_packages=(binutils g++ git libcurl4-openssl-dev libjq-dev libsystemd-dev libtomlplusplus-dev pkg-config)
build_packages+=(libncurses6 libxml2)  # what the Swift toolchain itself is linked with
test_packages=(openssl python3 python3-venv)
test_packages+=(libnginx-mod-nchan nginx)  # an upstream that is not ours
test_packages+=(dbus-daemon fish groff-base man-db systemd zsh)  # what reads the files beside the programs
container_packages=(debian-archive-keyring mmdebstrap systemd-container)

say() { printf '%s\n' "${0##*/}: $*" >&2; }

die() {
  say "$*"
  exit 1
}

# Prints the comment at the head of the calling script, which is its help.
print_help() { sed -n '2,/^[^#]/ { s/^# \{0,1\}//p }' "deploy/${0##*/}"; }

is_root() { [[ $EUID -eq 0 ]]; }

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# need_packages NAME…: installs the ones that are missing when root, names them and ends otherwise.
need_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian or Ubuntu system; going on without a look at what is installed (needed: $*)"
    return
  fi
  for name; do is_installed "$name" || missing+=("$name"); done
  [[ ${#missing[@]} -eq 0 ]] && return
  is_root || die "missing packages; install them with: sudo apt-get install --no-install-recommends ${missing[*]}"
  say "installing ${missing[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
}

need_swift() {
  [[ -x /opt/swift/usr/bin/swift ]] && PATH=$PATH:/opt/swift/usr/bin
  command -v swift >/dev/null || die "no Swift on PATH nor in /opt/swift; get 6.2 or later from https://swift.org/install"
}

# Programs that run where no Swift is installed: its libraries are linked in, those of the system are not.
build_release() { swift build --configuration release --static-swift-stdlib; }

release_folder=.build/release
