#compdef streamctl
# Completes streamctl in zsh: commands, options, their values, and the names of streams, asked of the daemon.

# Names of streams: of all, or of those whose source is $1. None, and no complaint, where no daemon answers at once.
_streamctl_names() {
  local -a socket names
  if [[ -n ${opt_args[--socket]} ]]; then socket=(--socket ${(Q)opt_args[--socket]}); fi
  names=(${(f)"$(timeout 1 streamctl $socket list 2>/dev/null </dev/null |
    awk -v source="$1" 'NR > 1 && (source == "" || $3 == source) { print $1 }')"})
  compadd -a names
}

_streamctl() {
  local curcontext=$curcontext state line ret=1
  local -A opt_args
  local -a commands options
  commands=(
    'list:what the daemon serves'
    'sub:print the events of a stream as they come'
    'get:print the newest event of a stream'
    'pub:publish an event, or each line of standard input'
    'status:the counters of the daemon'
    'top:the streams and how fast they are'
  )
  options=('--socket=[the socket of the daemon]:socket:_files')
  case ${words[(r)(list|sub|get|pub|status|top)]} in
    sub)
      options+=(
        '--credit=[ask for so many events at a time]:number: '
        '--count=[stop after so many events]:number: '
        '--from=[where to begin]:position:(replay latest new -1m -5m -1h)'
        '--no-reconnect[end when the connection is lost]'
        '--on-lag=[what to do after falling behind]:policy:(skip latest fail)'
        '--format=[how to print events]:format:(data json raw)'
        '--max-event=[the largest event that is read]:size:(64MiB 256MiB 1GiB)'
        '--timeout=[end when no event comes for so long]:time:(5s 30s 5m)'
      )
      ;;
    get)
      options+=(
        '--format=[how to print the event]:format:(data json raw)'
        '--max-event=[the largest event that is read]:size:(64MiB 256MiB 1GiB)'
        '--timeout=[end when no event comes for so long]:time:(5s 30s 5m)'
      )
      ;;
    pub)
      options+=(
        '--as=[publish under this name]:name: '
        '--no-reconnect[end when the connection is lost]'
      )
      ;;
    top)
      options+=(
        '--count=[stop after so many tables]:number: '
        '--sort=[which stream comes first]:order:(name rate)'
      )
      ;;
    '') options+=('(-h --help)'{-h,--help}'[a short help]' '--version[the version]') ;;
  esac

  _arguments -C $options '1:command:->command' '2:name:->name' '*: :' && ret=0
  case $state in
    command) _describe command commands && ret=0 ;;
    name)
      case $line[1] in
        sub | get) _streamctl_names '' && ret=0 ;;
        pub) _streamctl_names publish && ret=0 ;;
      esac
      ;;
  esac
  return ret
}

_streamctl "$@"
