# The paths of deploy/install and deploy/uninstall; sourced, not run.
DESTDIR=${DESTDIR-}
PREFIX=${PREFIX-/usr}
[[ $PREFIX == /* ]] || die "PREFIX must begin with /, got $PREFIX"

programs=(streamd streamctl)
bin=$PREFIX/bin
units=$PREFIX/lib/systemd/system
user_units=$PREFIX/lib/systemd/user
sysusers=$PREFIX/lib/sysusers.d/streamd.conf
documents=$PREFIX/share/doc/streamd
config=/etc/streamd/streamd.toml
shipped_config=$documents/streamd.toml
drop_ins=/etc/streamd/streamd.d
state=/var/lib/streamd

# With another PREFIX the policy goes to /etc, where D-Bus finds it.
bus_policy=$PREFIX/share/dbus-1/system.d/org.streamd.conf
[[ $PREFIX == /usr ]] || bus_policy=/etc/dbus-1/system.d/org.streamd.conf
# Debian's zsh has a directory of its own for the completions of packages.
zsh_functions=$PREFIX/share/zsh/site-functions
[[ $PREFIX != /usr || ! -e $DESTDIR/etc/debian_version && -z ${DEBIAN_PACKAGE-} ]] || zsh_functions=$PREFIX/share/zsh/vendor-completions

# Files that are installed unchanged, and their destinations.
declare -A copies=(
  [deploy/systemd/streamd.sysusers]=$sysusers
  [deploy/systemd/streamd.socket]=$units/streamd.socket
  [deploy/systemd/user/streamd.socket]=$user_units/streamd.socket
  [deploy/systemd/streamd.catalog]=$PREFIX/lib/systemd/catalog/streamd.catalog
  [deploy/systemd/org.streamd.conf]=$bus_policy
  [docs/man/streamd.8]=$PREFIX/share/man/man8/streamd.8
  [docs/man/streamctl.1]=$PREFIX/share/man/man1/streamctl.1
  [docs/man/streamd.toml.5]=$PREFIX/share/man/man5/streamd.toml.5
  [docs/man/streamd-fleet.7]=$PREFIX/share/man/man7/streamd-fleet.7
  [docs/man/streamd-http.7]=$PREFIX/share/man/man7/streamd-http.7
  [docs/man/streamd-sources.7]=$PREFIX/share/man/man7/streamd-sources.7
)
# What users read; the documents of the source stay there.
for document in docs/{COMPATIBILITY,EXAMPLES,HTTP,NODE,PYTHON,RECIPES,RESTARTS,SEMANTICS,SERVICE,START,STREAMS,WIRE}; do
  copies[$document.md]=$documents/${document##*/}.md
done
for program in "${programs[@]}"; do
  copies[deploy/completions/$program.bash]=$PREFIX/share/bash-completion/completions/$program
  copies[deploy/completions/$program.zsh]=$zsh_functions/_$program
  copies[deploy/completions/$program.fish]=$PREFIX/share/fish/vendor_completions.d/$program.fish
done
for example in config/examples/*.toml deploy/systemd/examples/*.conf; do
  copies[$example]=$documents/examples/${example##*/}
done
for example in config/examples/fleet/*; do copies[$example]=$documents/examples/fleet/${example##*/}; done

# Files in which the directory of the programs is inserted, and their destinations.
declare -A services=(
  [deploy/systemd/streamd.service]=$units/streamd.service
  [deploy/systemd/user/streamd.service]=$user_units/streamd.service
)

# Whether the target is the running system, under systemd.
is_live() { [[ -z $DESTDIR && -d /run/systemd/system ]]; }
