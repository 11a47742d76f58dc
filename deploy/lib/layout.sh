# Where deploy/install puts things and deploy/uninstall finds them; sourced, not run.
DESTDIR=${DESTDIR-}
PREFIX=${PREFIX-/usr}
[[ $PREFIX == /* ]] || die "PREFIX has to begin with /, got $PREFIX"

programs=(streamd streamctl)
bin=$PREFIX/bin
units=$PREFIX/lib/systemd/system
sysusers=$PREFIX/lib/sysusers.d/streamd.conf
config=/etc/streamd/streamd.toml
shipped_config=$PREFIX/share/doc/streamd/streamd.toml
state=/var/lib/streamd

# Whether this is the running system rather than a folder, and systemd runs it.
is_live() { [[ -z $DESTDIR && -d /run/systemd/system ]]; }
