# Completes streamctl in bash: commands, options, their values, and names of streams, requested from the daemon.

# Names of all streams, or of those with source $1. Empty, without an error, if no daemon replies at once.
_streamctl_names() {
  timeout 1 streamctl "${socket[@]}" list 2>/dev/null </dev/null |
    awk -v source="${1-}" '!NF { exit } NR > 1 && (source == "" || $3 == source) { print $1 }'
}

_streamctl() {
  # Bash also splits words at `=` and `:`, and replaces the part at the cursor only.
  local word words=() index joins='' begun='' current=${COMP_WORDS[COMP_CWORD]}
  for ((index = 1; index <= COMP_CWORD; index++)); do
    word=${COMP_WORDS[index]}
    if [[ $joins || $word == [=:]* ]] && ((${#words[@]})); then words[-1]+=$word; else words+=("$word"); fi
    joins=''
    if [[ $word == *[=:] ]]; then joins=yes; fi
  done
  if [[ $current == [=:]* ]]; then current=''; fi
  begun=${words[-1]%"$current"}
  unset 'words[-1]'

  local option='' command='' name='' socket=()
  for word in "${words[@]}"; do
    if [[ $option ]]; then
      if [[ $option == --socket ]]; then socket=(--socket "$word"); fi
      option=''
      continue
    fi
    case $word in
      --socket=*) socket=(--socket "${word#*=}") ;;
      --socket | --token-file | --credit | --count | --from | --last | --on-lag | --format | --max-event | --sort | --timeout | --as | --max-age | --where | --key) option=$word ;;
      -n) option=--last ;;
      -o) option=--format ;;
      -*) ;;
      *) if [[ ! $command ]]; then command=$word; else name=$word; fi ;;
    esac
  done

  case $begun in
    -n=*) option=--last ;;
    -o=*) option=--format ;;
    --*=*) option=${begun%%=*} ;;
  esac

  local offered=''
  case $option in
    --socket | --token-file)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
    --from) offered='replay latest new state -1m -5m -1h' ;;
    --on-lag) offered='skip latest fail' ;;
    --format) offered='data json raw' ;;
    --sort) offered='name rate lag state' ;;
    --credit | --count | --last | --as | --where | --key) ;;
    --max-event) offered='64MiB 256MiB 1GiB' ;;
    --timeout | --max-age) offered='5s 30s 5m' ;;
    *)
      case $command:$current in
        sub:-*)
          offered='--credit --count --from --last --follow --marker --no-follow --no-reconnect --on-lag --where --format --max-event'
          offered+=' --timeout --socket --token-file'
          ;;
        get:-*) offered='--format --key --max-event --timeout --socket --token-file' ;;
        pub:-*) offered='--as --no-reconnect --socket --token-file' ;;
        check:-*) offered='--json --max-age --timeout --socket --token-file' ;;
        list:-*) offered='--failing --json --long --socket --token-file' ;;
        status:-* | config:-* | clients:-*) offered='--json --socket --token-file' ;;
        reload:-*) offered='--timeout --socket --token-file' ;;
        top:-*) offered='--count --json --sort --socket --token-file' ;;
        :-*) offered='--socket --token-file --help --version' ;;
        *:-*) offered='--socket --token-file' ;;
        :*) offered='list sub get pub status config clients kick refresh make forget request reload top check' ;;
        sub:* | forget:*) offered=$(_streamctl_names) ;;
        get:* | check:* | refresh:*) if [[ ! $name ]]; then offered=$(_streamctl_names); fi ;;
        pub:*) if [[ ! $name ]]; then offered=$(_streamctl_names publish); fi ;;
        reload:*) if [[ ! $name ]]; then offered=$(pidof streamd 2>/dev/null); fi ;;
      esac
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$current")
}

complete -F _streamctl streamctl
