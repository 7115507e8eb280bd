# Runs in a container of the image and says what it finds, one fact a line; trainyard/images/lint/probe.py reads them.
# Any sh runs it. Its arguments are questions, answered by their number:
# python:FILE path:FILE program:NAME import:MODULE entry:MODULE:FUNCTION run:COMMAND
newline='
'
say() { printf 'trainyard: %s\n' "$*"; }

# pass_on OUTPUT: print only the lines that a Python program printed for this probe.
pass_on() {
    printf '%s\n' "$1" | while IFS= read -r line; do
        case $line in "trainyard: "*) printf '%s\n' "$line" ;; esac
    done
}

# say_end KEY CODE OUTPUT: how a command ended, with its last error, else its last line.
say_end() {
    said=$(printf '%s\n' "$3" | {
        while IFS= read -r line; do
            case $line in *Error:* | *Error | *"not found"*) error=$line ;; esac
            last=$line
        done
        printf '%s' "${error:-$last}"
    })
    say "$1" "$2" "$said"
}

say begin
say uid "$(id -u 2>/dev/null)"
say user "$(id -un 2>/dev/null)"
say bash "$([ -x /bin/bash ] && echo /bin/bash)"
say wget "$(command -v wget)"
say python.program "$(command -v python)"

# Ray writes to /tmp. The other directories matter only if /tmp is not writable: the next part needs one for a file.
scratch=
for directory in /tmp /dev/shm /var/tmp .; do
    if (: >"$directory/.trainyard-probe") 2>/dev/null; then
        rm -f "$directory/.trainyard-probe"
        say "writable:$directory" yes
        scratch=${scratch:-$directory}
    fi
done

# The Python under which `ray` runs names itself, behind any wrapper: it imports sitecustomize first. This sitecustomize
# then imports that of the image, if there is one.
witness=$scratch/.trainyard-witness
if [ -n "$scratch" ] && mkdir -p "$witness"; then
    cat >"$witness/sitecustomize.py" <<'END'
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
print("trainyard: ray.python", os.path.realpath(sys.prefix), flush=True)
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
del sys.modules["sitecustomize"]
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = sys
END
fi

# Files in which programs keep logins: everyone who can pull the image can read them.
for home in "$HOME" /root; do
    for name in .netrc .pypirc .git-credentials .aws/credentials .docker/config.json .ssh/id_rsa .ssh/id_ed25519; do
        if [ -s "$home/$name" ]; then say "secret:$home/$name" yes; fi
    done
done

ray=$(command -v ray)
say ray.program "$ray"
if [ -n "$ray" ]; then
    IFS= read -r first <"$ray" 2>/dev/null
    say ray.first_line "$first"
    output=$(PYTHONPATH="$witness${PYTHONPATH:+:$PYTHONPATH}" ray --version </dev/null 2>&1)
    say_end ray.ended "$?" "$output"
    pass_on "$output"
    case $output in *"ray, version "*)
        version=${output##*"ray, version "}
        say ray.version "${version%%"$newline"*}"
        ;;
    esac
fi
rm -rf "$witness"

# `ray.init` proves that this is Ray: a directory named `ray` next to a job can be imported, too, as an empty module.
output=$(python -c 'import os, sys
print("trainyard: python.prefix", os.path.realpath(sys.prefix), flush=True)
import ray
ray.init
print("trainyard: python.ray", ray.__version__)' </dev/null 2>&1)
say_end python.ended "$?" "$output"
pass_on "$output"

modules=
number=0
for asked in "$@"; do
    what=${asked#*:}
    case $asked in
    python:*)
        output=$("$what" -c 'import os, sys
print("trainyard: asked.prefix", os.path.realpath(sys.prefix))' </dev/null 2>&1)
        say_end "$number" "$?" "$output"
        pass_on "$output"
        ;;
    path:*) if [ -e "$what" ]; then say "$number" 0; fi ;;
    program:*) if command -v "$what" >/dev/null; then say "$number" 0; fi ;;
    import:*) modules="$modules $number:$what" ;;
    entry:*)
        output=$(python -c 'import importlib, sys
module, function = sys.argv[1].split(":")
sys.argv = [function, "--help"]
found = importlib.import_module(module)
for name in function.split("."):
    found = getattr(found, name)
found()' "$what" </dev/null 2>&1)
        say_end "$number" "$?" "$output"
        ;;
    run:*)
        output=$(sh -c "$what" </dev/null 2>&1)
        say_end "$number" "$?" "$output"
        ;;
    esac
    number=$((number + 1))
done

if [ -n "$modules" ]; then
    # One Python for all of them: starting one takes longer than most imports.
    # shellcheck disable=SC2086
    output=$(python -c 'import importlib, sys
for asked in sys.argv[1:]:
    number, name = asked.split(":")
    try:
        importlib.import_module(name)
        print("trainyard:", number, 0, flush=True)
    except BaseException as error:
        said = " ".join(str(error).split())
        print("trainyard:", number, 1, type(error).__name__ + ": " + said, flush=True)
' $modules </dev/null 2>&1)
    pass_on "$output"
fi
say end
