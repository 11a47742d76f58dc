# Where deploy/install puts things and deploy/uninstall finds them; sourced, not run.
DESTDIR=${DESTDIR-}
PREFIX=${PREFIX-/usr}
[[ $PREFIX == /* ]] || die "PREFIX has to begin with /, got $PREFIX"

programs=(streamd streamctl)
bin=$PREFIX/bin
units=$PREFIX/lib/systemd/system
user_units=$PREFIX/lib/systemd/user
sysusers=$PREFIX/lib/sysusers.d/streamd.conf
documents=$PREFIX/share/doc/streamd
config=/etc/streamd/streamd.toml
shipped_config=$documents/streamd.toml
state=/var/lib/streamd

# The bus reads one folder of the system's own, wherever the rest is.
bus_policy=$PREFIX/share/dbus-1/system.d/org.streamd.conf
[[ $PREFIX == /usr ]] || bus_policy=/etc/dbus-1/system.d/org.streamd.conf
# Debian's zsh looks for what packages bring in a folder of its own.
zsh_functions=$PREFIX/share/zsh/site-functions
[[ $PREFIX != /usr || ! -e $DESTDIR/etc/debian_version ]] || zsh_functions=$PREFIX/share/zsh/vendor-completions

# Files that are installed as they are, and where to.
declare -A copies=(
  [deploy/systemd/streamd.sysusers]=$sysusers
  [deploy/systemd/streamd.socket]=$units/streamd.socket
  [deploy/systemd/user/streamd.socket]=$user_units/streamd.socket
  [deploy/systemd/streamd.catalog]=$PREFIX/lib/systemd/catalog/streamd.catalog
  [deploy/systemd/org.streamd.conf]=$bus_policy
  [docs/man/streamd.8]=$PREFIX/share/man/man8/streamd.8
  [docs/man/streamctl.1]=$PREFIX/share/man/man1/streamctl.1
  [docs/man/streamd.toml.5]=$PREFIX/share/man/man5/streamd.toml.5
)
for program in "${programs[@]}"; do
  copies[deploy/completions/$program.bash]=$PREFIX/share/bash-completion/completions/$program
  copies[deploy/completions/$program.zsh]=$zsh_functions/_$program
  copies[deploy/completions/$program.fish]=$PREFIX/share/fish/vendor_completions.d/$program.fish
done
for example in config/examples/*.toml deploy/systemd/examples/*.conf; do
  copies[$example]=$documents/examples/${example##*/}
done

# Files in which the programs' folder is filled in, and where to.
declare -A services=(
  [deploy/systemd/streamd.service]=$units/streamd.service
  [deploy/systemd/user/streamd.service]=$user_units/streamd.service
)

# Whether this is the running system rather than a folder, and systemd runs it.
is_live() { [[ -z $DESTDIR && -d /run/systemd/system ]]; }
