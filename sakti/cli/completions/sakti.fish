# Completes lines of sakti in fish. `sakti --show-completion fish` prints this.
function __sakti_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program sakti
    string match -q '*/*' -- $words[1]; and set program $words[1]
    set -l word (string unescape -- "$current"; or echo -- "$current")
    for line in ($program --complete fish $words[2..-1] "$word" 2>/dev/null)
        if test "$line" = \tfiles
            set -l lead (string match -r -- '^--[^=]*=' "$current")
            for path in (__fish_complete_path (string replace -- "$lead" '' "$current"))
                echo "$lead$path"
            end
        else
            echo $line
        end
    end
end
complete -c sakti -f -a '(__sakti_complete)'
