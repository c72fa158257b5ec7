#compdef sakti
# Completes lines of sakti in zsh. `sakti --show-completion zsh` prints this.
_sakti() {
    local program=sakti line word
    local -a found open
    [[ $words[1] == */* ]] && program=${~words[1]}
    for line in ${(f)"$($program --complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)"}; do
        if [[ $line == $'\tfiles' ]]; then
            compset -P '--*='
            _files
            return
        fi
        word=${line%%$'\t'*}
        if [[ $word == *[=/] ]]; then
            open+=("${word//:/\\:}:${line#*$'\t'}")
        else
            found+=("${word//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#open )) && _describe -V sakti open -S ''
    (( $#found )) && _describe -V sakti found
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _sakti "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _sakti sakti
fi
