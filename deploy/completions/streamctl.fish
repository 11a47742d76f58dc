# Completes streamctl in fish: commands, options, their values, and names of streams, requested from the daemon.

# Names of all streams, or of those with source $argv[1]. Empty, without an error, if no daemon replies at once.
function __streamctl_names
    set -l socket
    set -l words (commandline -opc)
    for index in (seq (count $words))
        if test "$words[$index]" = --socket
            set socket --socket $words[(math $index + 1)]
        else if string match -q -- '--socket=*' $words[$index]
            set socket $words[$index]
        end
    end
    timeout 1 streamctl $socket list 2>/dev/null </dev/null |
        awk -v source="$argv[1]" '!NF { exit } NR > 1 && (source == "" || $3 == source) { print $1 }'
end

# The operands so far: the command and its arguments.
function __streamctl_operands
    set -l is_value 0
    for word in (commandline -opc)[2..-1]
        if test $is_value = 1
            set is_value 0
        else if contains -- $word --socket --token-file --credit --count --from --last --on-lag --format --max-event --sort --timeout --as --max-age --where --key -n -o
            set is_value 1
        else if not string match -q -- '-*' $word
            echo $word
        end
    end
end

function __streamctl_wants_command
    test (count (__streamctl_operands)) = 0
end

function __streamctl_is
    set -l operands (__streamctl_operands)
    test (count $operands) -gt 0; and contains -- $operands[1] $argv
end

function __streamctl_wants_name
    __streamctl_is $argv; and test (count (__streamctl_operands)) = 1
end

complete -c streamctl -f
complete -c streamctl -n __streamctl_wants_command -a list -d 'List the streams'
complete -c streamctl -n __streamctl_wants_command -a sub -d 'Print the events of a stream as they arrive'
complete -c streamctl -n __streamctl_wants_command -a get -d 'Print the newest event of a stream'
complete -c streamctl -n __streamctl_wants_command -a pub -d 'Publish an event, or each line of standard input'
complete -c streamctl -n __streamctl_wants_command -a status -d 'Print the counters of the daemon'
complete -c streamctl -n __streamctl_wants_command -a config -d 'Print the configuration that the daemon serves'
complete -c streamctl -n __streamctl_wants_command -a clients -d 'List the clients and their subscriptions'
complete -c streamctl -n __streamctl_wants_command -a kick -d 'End the connection of a client'
complete -c streamctl -n __streamctl_wants_command -a refresh -d 'Make a source ask its upstream now'
complete -c streamctl -n __streamctl_wants_command -a make -d 'Make streams of templates'
complete -c streamctl -n __streamctl_wants_command -a forget -d 'End streams of templates'
complete -c streamctl -n __streamctl_wants_command -a request -d 'Ask the upstream of a template once'
complete -c streamctl -n __streamctl_wants_command -a reload -d 'Make the daemon reload its configuration'
complete -c streamctl -n __streamctl_wants_command -a top -d 'Show the rates of the streams'
complete -c streamctl -n __streamctl_wants_command -a check -d 'Print whether a stream is fresh, for monitoring'
complete -c streamctl -n '__streamctl_is sub forget' -a '(__streamctl_names)'
complete -c streamctl -n '__streamctl_wants_name get check refresh' -a '(__streamctl_names)'
complete -c streamctl -n '__streamctl_wants_name pub' -a '(__streamctl_names publish)'
complete -c streamctl -n '__streamctl_wants_name reload' -a '(pidof streamd 2>/dev/null | string split " ")'
complete -c streamctl -l socket -r -F -d 'The socket of the daemon'
complete -c streamctl -l token-file -r -F -d 'The file with the token'
complete -c streamctl -n __streamctl_wants_command -s h -l help -d 'Print a short help text'
complete -c streamctl -n __streamctl_wants_command -l version -d 'Print the version'
complete -c streamctl -n '__streamctl_is sub' -l credit -x -d 'Events to request at a time'
complete -c streamctl -n '__streamctl_is sub top' -l count -x -d 'Stop after this number'
complete -c streamctl -n '__streamctl_is sub' -l from -x -a 'replay latest new state -1m -5m -1h' -d 'First event'
complete -c streamctl -n '__streamctl_is sub' -s n -l last -x -d 'Begin with this number of last events'
complete -c streamctl -n '__streamctl_is sub' -l marker -d 'Show when all events are printed'
complete -c streamctl -n '__streamctl_is sub' -s f -l follow -d 'Go on with new events'
complete -c streamctl -n '__streamctl_is sub' -l no-follow -d 'Stop after the events that are there'
complete -c streamctl -n '__streamctl_is sub' -l where -x -d 'Print only events for which this holds'
complete -c streamctl -n '__streamctl_is pub' -l as -x -d 'Publish under this name'
complete -c streamctl -n '__streamctl_is sub pub' -l no-reconnect -d 'Exit when the connection is lost'
complete -c streamctl -n '__streamctl_is sub' -l on-lag -x -a 'skip latest fail' -d 'Behaviour after falling behind'
complete -c streamctl -n '__streamctl_is sub get' -s o -l format -x -a 'data json raw' -d 'Output format'
complete -c streamctl -n '__streamctl_is get' -l key -x -d 'The key whose newest event is printed'
complete -c streamctl -n '__streamctl_is sub get' -l max-event -x -a '64MiB 256MiB 1GiB' -d 'Size of the largest event'
complete -c streamctl -n '__streamctl_is sub get' -l timeout -x -a '5s 30s 5m' -d 'Exit when no event arrives for this time'
complete -c streamctl -n '__streamctl_is reload check' -l timeout -x -a '5s 30s 5m' -d 'Exit when the daemon does not reply for this time'
complete -c streamctl -n '__streamctl_is list status config clients top check' -l json -d 'Print JSON'
complete -c streamctl -n '__streamctl_is list' -l failing -d 'Only streams that need a look'
complete -c streamctl -n '__streamctl_is list' -s l -l long -d 'With the ids of the newest events'
complete -c streamctl -n '__streamctl_is check' -l max-age -x -a '5s 30s 5m' -d 'Age from which the stream is old'
complete -c streamctl -n '__streamctl_is top' -l sort -x -a 'name rate lag state' -d 'Order of streams'
