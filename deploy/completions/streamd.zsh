#compdef streamd
# Completes streamd in zsh.
_arguments \
  '(-c --config)'{-c,--config=}'[the configuration]:file:_files -g "*.toml"' \
  '--check[say every mistake in the configuration]' \
  '(- *)--version[print the version]' \
  '(- *)'{-h,--help}'[print a short help]'
