#compdef streamd
# Completes streamd in zsh.
_arguments \
  '(-c --config)'{-c,--config=}'[configuration file]:file:_files -g "*.toml"' \
  '--check[report all errors in the configuration]::file:_files -g "*.toml"' \
  '(- *)--version[print the version]' \
  '(- *)'{-h,--help}'[print a short help text]'
