#compdef streamctl
# Completes streamctl in zsh: commands, options, their values, and names of streams, requested from the daemon.

# Names of all streams, or of those with source $1. Empty, without an error, if no daemon replies at once.
_streamctl_names() {
  local -a socket names
  if [[ -n ${opt_args[--socket]} ]]; then socket=(--socket ${(Q)opt_args[--socket]}); fi
  names=(${(f)"$(timeout 1 streamctl $socket list 2>/dev/null </dev/null |
    awk -v source="$1" '!NF { exit } NR > 1 && (source == "" || $3 == source) { print $1 }')"})
  compadd -a names
}

_streamctl() {
  local curcontext=$curcontext state line ret=1
  local -A opt_args
  local -a commands options
  commands=(
    'list:list the streams'
    'sub:print the events of a stream as they arrive'
    'get:print the newest event of a stream'
    'pub:publish an event, or each line of standard input'
    'status:print the counters of the daemon'
    'config:print the configuration that the daemon serves'
    'clients:list the clients and their subscriptions'
    'kick:end the connection of a client'
    'refresh:make a source ask its upstream now'
    'make:make streams of templates'
    'forget:end streams of templates'
    'request:ask the upstream of a template once'
    'reload:make the daemon reload its configuration'
    'top:show the rates of the streams'
    'check:print whether a stream is fresh, for monitoring'
  )
  options=(
    '--socket=[the socket of the daemon]:socket:_files'
    '--token-file=[the file with the token]:file:_files'
  )
  case ${words[(r)(list|sub|get|pub|status|config|clients|kick|refresh|make|forget|request|reload|top|check)]} in
    sub)
      options+=(
        '--credit=[events to request at a time]:number: '
        '--count=[stop after this number of events]:number: '
        '--from=[first event]:position:(replay latest new state -1m -5m -1h)'
        '(-n --last)'{-n,--last=}'[begin with this number of last events]:number: '
        '(-f --follow)'{-f,--follow}'[go on with new events]'
        '--marker[show when all events are printed]'
        '--no-follow[stop after the events that are there]'
        '--no-reconnect[exit when the connection is lost]'
        '*--where=[print only events for which this holds]:condition: '
        '--on-lag=[behaviour after falling behind]:policy:(skip latest fail)'
        '(-o --format)'{-o,--format=}'[output format]:format:(data json raw)'
        '--max-event=[size of the largest event]:size:(64MiB 256MiB 1GiB)'
        '--timeout=[exit when no event arrives for this time]:time:(5s 30s 5m)'
      )
      ;;
    get)
      options+=(
        '--key=[the key whose newest event is printed]:key: '
        '(-o --format)'{-o,--format=}'[output format]:format:(data json raw)'
        '--max-event=[size of the largest event]:size:(64MiB 256MiB 1GiB)'
        '--timeout=[exit when no event arrives for this time]:time:(5s 30s 5m)'
      )
      ;;
    pub)
      options+=(
        '--as=[publish under this name]:name: '
        '--no-reconnect[exit when the connection is lost]'
      )
      ;;
    reload) options+=('--timeout=[exit when the daemon does not reply for this time]:time:(5s 30s 5m)') ;;
    check)
      options+=(
        '--json[print JSON]'
        '--max-age=[age from which it is old]:time:(5s 30s 5m)'
        '--timeout=[exit when the daemon does not reply for this time]:time:(5s 30s 5m)'
      )
      ;;
    list) options+=('--failing[only streams that need a look]' '--json[print JSON]' '(-l --long)'{-l,--long}'[with the ids of the newest events]') ;;
    status | config | clients) options+=('--json[print JSON]') ;;
    top)
      options+=(
        '--json[print JSON]'
        '--count=[stop after this number of tables]:number: '
        '--sort=[order of streams]:order:(name rate lag state)'
      )
      ;;
    '') options+=('(-h --help)'{-h,--help}'[print a short help text]' '--version[print the version]') ;;
  esac

  _arguments -C $options '1:command:->command' '*:name:->name' && ret=0
  case $state in
    command) _describe command commands && ret=0 ;;
    name)
      # The command and its arguments up to the cursor; these accept several names.
      if (($#line > 2)) && [[ $line[1] != (sub|forget) ]]; then return 1; fi
      case $line[1] in
        sub | get | check | refresh | forget) _streamctl_names '' && ret=0 ;;
        pub) _streamctl_names publish && ret=0 ;;
        reload) compadd $(pidof streamd 2>/dev/null) && ret=0 ;;
      esac
      ;;
  esac
  return ret
}

_streamctl "$@"
