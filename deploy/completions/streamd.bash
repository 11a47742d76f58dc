# Completes streamd in bash.
_streamd() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == '=' ]]; then previous='--config' current=''; fi
  case $previous in
    --config | -c | --check | =)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W '--config --check --version --help' -- "$current") ;;
  esac
}

complete -F _streamd streamd
