# Completes lines of sakti in bash. `sakti --show-completion bash` prints this.
_sakti() {
    local program=sakti line
    case $1 in */*) program=${1/#\~/$HOME} ;; esac
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            $'\tfiles') compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$2")) ;;
            $'\tnospace') compopt -o nospace 2>/dev/null ;;
            *) COMPREPLY+=("$line") ;;
        esac
    done < <("$program" --complete bash "$COMP_TYPE" "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o nosort -F _sakti sakti 2>/dev/null || complete -F _sakti sakti
