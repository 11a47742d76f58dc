# Completes streamd in fish.
complete -c streamd -f
complete -c streamd -s c -l config -r -F -d 'The configuration'
complete -c streamd -l check -d 'Say every mistake in the configuration'
complete -c streamd -l version -d 'Print the version'
complete -c streamd -s h -l help -d 'Print a short help'
