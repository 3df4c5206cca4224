#!/bin/bash
# The manual page and the completions, as fa2-tune prints them: linted, sourced and asked. Usage: test_manual.sh
# FA2_TUNE. zsh and fish are asked where they are.
set -u
[ $# -ge 1 ] || {
    echo "usage: test_manual.sh FA2_TUNE" >&2
    exit 2
}
tune=$1
sim=$(realpath "$(dirname "$0")")/sim
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"

# equal WHAT ACTUAL EXPECTED
equal() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: \"$2\", expected \"$3\""
}

# ---- what the software device reads from the environment is on its page ----
for name in $(grep -oh '"FA2_SIM_[A-Z_]*"' "$sim"/*.c | tr -d '"' | sort -u); do
    ran="the page of the software device"
    has "$sim/README.md" "| \`$name\` |"
done

run 2 nonsense
commands=$(sed 's/.*known: //' err)

# ---- the help names the options that there are, and so do the manual page and the completions ----
run 0 man
cp out fa2-tune.1
for shell in bash zsh fish; do
    run 0 completion "$shell"
    cp out "fa2-tune.$shell"
done
for command in $commands; do
    run 2 "$command" --nonsense
    taken=$(sed 's/.*it takes --help//; s/[, ]\+/ /g; s/^ //' err | tr ' ' '\n' | sort -u | xargs)
    run 0 "$command" --help
    equal "options in the help of $command" "$(sed -n 's/^  \(--[a-z-]*\).*/\1/p' out | sort -u | xargs)" "$taken"
    sed -n "/^\\.SS $command\$/,/^\\.S/p" fa2-tune.1 >section
    equal "options of $command in the manual" \
        "$(sed -n 's/^\.B \\-\\-/--/p' section | sed 's/\\-/-/g; s/ .*//' | sort -u | xargs)" "$taken"
    taken=$(echo "--help $taken" | tr ' ' '\n' | sort -u | xargs)
    equal "options of $command in fish" \
        "$(sed -n "s/.*_from $command' -l \([a-z-]*\).*/--\1/p" fa2-tune.fish | sort -u | xargs)" "$taken"
    equal "options of $command in zsh" \
        "$(sed -n "/^        $command) _arguments/,/;;\$/s/.*'\*\(--[a-z-]*\).*/\1/p" fa2-tune.zsh | sort -u | xargs)" \
        "$taken"
    equal "options of $command in bash" \
        "$(sed -n "s/^        $command) words='\(.*\)' ;;/\1/p" fa2-tune.bash | tr ' ' '\n' | sort -u | xargs)" "$taken"
done
run 2 completion
run 2 completion tcsh
has err "bash, zsh or fish"

# ---- the manual page ----
expect_status 0 mandoc mandoc -T lint -W error fa2-tune.1
expect_status 0 mandoc mandoc -T utf8 fa2-tune.1
has out "interrupted, what was found out is kept"
has out "Hkv (heads_kv) [as Hq]"

# ---- bash ----
# shellcheck source=/dev/null
. ./fa2-tune.bash
# complete_bash EXPECTED WORD...: what the last word is completed to, in order.
complete_bash() {
    expected=$1
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _fa2_tune 2>/dev/null # compopt works only while the shell itself completes
    equal "completion of $*" "$(printf '%s\n' "${COMPREPLY[@]}" | sort | xargs)" "$expected"
}
complete_bash "explain export" fa2-tune ex
complete_bash "--budget" fa2-tune tune --bu
complete_bash "--budget" fa2-tune --bu
complete_bash "--dry-run" fa2-tune forget --dr
complete_bash "bench build" fa2-tune help b
complete_bash "help" fa2-tune he
complete_bash "fish" fa2-tune completion f
complete_bash "--html" fa2-tune report --h --ht
complete_bash "llm" fa2-tune --preset l
complete_bash "backward" fa2-tune list --op b
# The presets are those that there are.
run 2 tune --device 0 --preset nonsense
presets=$(sed 's/.*known: //; s/,//g' err)
complete_bash "$(echo "$presets" | tr " " "\n" | sort | xargs)" fa2-tune --preset ""
# And the SMs those that a card stands for.
run 2 build --arch sm_61
sms=$(grep -o 'sm_[0-9]*' err | grep -v sm_61 | sort -u | xargs)
complete_bash "$sms" fa2-tune build --arch sm_
complete_bash "$sms" fa2-tune explain --arch sm_
complete_bash "all" fa2-tune tune --op a
complete_bash "all" fa2-tune show --op a
for command in list forget report; do
    complete_bash "all backward forward" fa2-tune "$command" --op ""
done
complete_bash "B D S" fa2-tune bench --scale ""
: >wanted.db
complete_bash "wanted.db" fa2-tune list --db wan
complete_bash "" fa2-tune tune --jobs ""
complete_bash "sm_75,sm_80 sm_75,sm_86 sm_75,sm_87 sm_75,sm_88 sm_75,sm_89" fa2-tune build --arch sm_75,sm_8
mkdir "a folder"
complete_bash "a folder" fa2-tune list --db a
# Names are quoted where the shell completes them itself.
checks=$((checks + 1))
grep -q 'compopt -o filenames' fa2-tune.bash || fail "names of files are not quoted"

# ---- every variable that is read is in the manual ----
run 0 man
for name in $(grep -rhoE '"(FA2_[A-Z_]+|[A-Z]+_HOME|CUDA_PATH|TMPDIR|NO_COLOR)"' "$sim"/../../runtime "$sim"/../../tuner \
    "$sim"/../../cache --include='*.c' | tr -d '"' | grep -vE '^FA2_(E|OK|RULE|OP|NVRTC_HINT|SHARE_)' | sort -u); do
    ran="the manual's list of variables"
    has out "$name"
done

# ---- zsh and fish read theirs ----
if command -v zsh >/dev/null; then
    expect_status 0 zsh zsh -n fa2-tune.zsh
    cp fa2-tune.zsh out
    for words in "'help:" "'completion:" "'man:" "'2:command:{_describe command commands}'" "'2:SHELL:(bash zsh fish)'" \
        "compadd -- --version"; do
        has out "$words"
    done
fi
if command -v fish >/dev/null; then
    expect_status 0 fish fish -c 'source fa2-tune.fish; complete -C "fa2-tune expl"'
    has out "explain"
    expect_status 0 fish fish -c 'source fa2-tune.fish; complete -C "fa2-tune build --pre"'
    has out "--preset"
    # complete_fish LINE WORD...: these are among what it offers.
    complete_fish() {
        line=$1
        shift
        expect_status 0 "fish: $line" fish -c "source fa2-tune.fish; complete -C '$line'"
        for word; do has out "$word"; done
    }
    complete_fish "fa2-tune " help completion man tune
    complete_fish "fa2-tune help b" bench build
    complete_fish "fa2-tune completion " bash zsh fish
    # Options without a command are those of tune.
    complete_fish "fa2-tune --pre" --preset
    complete_fish "fa2-tune --device 0 --bu" --budget
    complete_fish "fa2-tune --" --version --help
    complete_fish "fa2-tune gc --" --help --db
    complete_fish "fa2-tune man --" --help
    complete_fish "fa2-tune list --bu"
    lacks out "--budget"
fi
summary
