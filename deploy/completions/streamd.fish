# Completes streamd in fish.
complete -c streamd -f
complete -c streamd -s c -l config -r -F -d 'Configuration file'
complete -c streamd -l check -F -d 'Report all errors in the configuration'
complete -c streamd -l version -d 'Print the version'
complete -c streamd -s h -l help -d 'Print a short help text'
