"""The commands known only to look, to wait, or to run another: plain data for `commands`.

A command that is not here may change something. To be listed, it must leave nothing different that another command could see; test runners
and linters are listed although they write caches, since what they report depends on what they check.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SEARCHES = _words(
    """grep egrep fgrep zgrep rg ag ack fd fdfind locate ls dir tree cat head less more bat which whereis where type file stat findstr
    select-string sls get-childitem gci get-content gc get-item test-path"""
)

WAITS = _words("sleep usleep wait watch inotifywait start-sleep wait-process wait-job wait-event")
WAITS_WITH = {"gh": frozenset({"run watch"}), "kubectl": frozenset({"wait", "rollout status"}), "docker": frozenset({"wait"})}

LOOKS = _words(
    """pwd echo printf write-output write-host dirname basename realpath readlink whoami id groups uname printenv ps pgrep top free uptime
    vmstat lsof netstat ss du df wc nl cut tr uniq column paste join fold rev tac jq od xxd hexdump strings md5sum sha1sum sha224sum
    sha256sum sha384sum sha512sum cksum sum diff cmp comm colordiff test [ [[ true false : cd pushd popd chdir set-location set shopt
    seq expr man help history jobs nproc arch lscpu lsblk tty locale getconf dig nslookup host ping traceroute apt-cache dpkg-query
    journalctl ver vol tasklist systeminfo fc measure-object select-object where-object sort-object format-table format-list out-string
    out-null convertto-json convertfrom-json resolve-path split-path join-path get-location get-process get-service get-command get-help
    get-date get-member get-acl get-filehash get-variable compare-object nvidia-smi pytest py.test mypy flake8 pylint pyright jest rspec
    phpunit ctest vitest shellcheck cloc tokei eslint wmic env"""
)

_GIT = """status|diff|log|show|ls-files|ls-tree|ls-remote|rev-parse|rev-list|blame|grep|describe|shortlog|cat-file|merge-base|name-rev|
    for-each-ref|check-ignore|count-objects|whatchanged|diff-tree|diff-index|version|--version|help|stash list|stash show|worktree list|
    remote show|remote get-url|config --get|config --list|config -l|submodule status|bisect log|notes show"""
_PYTHON = "--version|-V|-m pytest|-m unittest|-m mypy|-m flake8|-m pylint"
_NODE = "ls|list|view|info|outdated|test|t|run test|run lint|run check|run typecheck|run type-check|why|lint|typecheck|--version|-v"

# Commands that only look when these words come first: one, or two; "*": whatever comes.
LOOKS_WITH = {
    name: frozenset(word.strip() for word in words.split("|"))
    for name, words in {
        "git": _GIT,
        "docker": "ps|images|logs|inspect|version|info|stats|top|port|diff|history|compose ps|compose logs|compose config|container ls|"
        "image ls|volume ls|network ls",
        "podman": "ps|images|logs|inspect|version|info|stats|top|port|diff|history",
        "kubectl": "get|describe|logs|top|version|explain|api-resources|api-versions|cluster-info|config view|config current-context|"
        "auth can-i|diff|rollout history|events",
        "gh": "pr view|pr list|pr status|pr diff|pr checks|run view|run list|issue view|issue list|issue status|repo view|"
        "repo list|release view|release list|auth status|workflow list|workflow view|search",
        "systemctl": "status|show|list-units|list-unit-files|list-timers|is-active|is-enabled|is-failed|cat",
        "npm": _NODE + "|explain|root|prefix|whoami",
        "pnpm": _NODE,
        "yarn": _NODE,
        "bun": "test|run test|run lint|run typecheck|pm ls",
        "npx": "jest|vitest|eslint|mocha|tsc --noEmit",
        "cargo": "check|test|clippy|tree|metadata|search|--version|nextest run",
        "go": "vet|test|list|version|env|doc",
        "pip": "list|show|freeze|check|--version|index versions",
        "pip3": "list|show|freeze|check|--version|index versions",
        "uv": "pip list|pip show|pip freeze|tree|--version|run pytest|run mypy|run pyright",
        "poetry": "show|check|env info|run pytest|run mypy",
        "python": _PYTHON,
        "python3": _PYTHON,
        "node": "--version|-v|--check|--test",
        "ruff": "check|--version",
        "tsc": "--noEmit|--version|-v",
        "make": "test|check|lint|typecheck|-n|help",
        "just": "test|check|lint|--list",
        "mvn": "test|dependency:tree|-v",
        "gradle": "test|check|tasks|dependencies",
        "gradlew": "test|check|tasks|dependencies",
        "dotnet": "test|--info|--version|--list-sdks",
        "mix": "test",
        "terraform": "plan|show|validate|output|state list|state show|version|providers",
        "helm": "list|ls|status|get|show|template|history|lint|version|search",
        "brew": "list|info|search|outdated|deps",
        "apt": "list|show|search|policy",
        "dpkg": "-l|-L|-s|--list",
        "rpm": "-q|-qa|-qi|-ql",
        "crontab": "-l",
        "tmux": "ls|list-sessions|capture-pane|list-panes|list-windows",
        "sc": "query|queryex",
        "net": "start|view",
        "reg": "query",
    }.items()
}

# These words look only while nothing but listing options follows them: `git branch -a`, but not `git branch new`.
ALONE = {"git branch", "git remote", "git tag", "git reflog", "git stash list", "npm audit"}
LISTING_OPTIONS = _words(
    """-a -r -v -vv -l -n --all --list --remotes --show-current --merged --no-merged --contains --sort --format --verbose show --json"""
)

# Whatever the command: with one of these it may change something.
CHANGING_OPTIONS = _words(
    """--fix --fix-dangerously --write --in-place --inplace --delete --prune --apply --update-snapshots --updateSnapshot --snapshot-update
    --inline-snapshot --rotate --vacuum-time --vacuum-size --output --output-file --ext-diff"""
)

# Programs that run the rest of their words.
WRAPPERS = _words(
    """sudo doas env command builtin exec nohup setsid stdbuf nice ionice xargs timeout gtimeout time chronic unbuffer call winpty"""
)
OPTION_VALUES = {
    "sudo": ("-u", "-g", "--user", "--group"),
    "env": ("-u", "-C", "--unset", "--chdir"),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "timeout": ("-s", "-k", "--signal", "--kill-after"),
    "gtimeout": ("-s", "-k"),
    "xargs": ("-I", "-n", "-P", "-L", "-d", "-a", "-s"),
    "git": ("-C", "-c", "--git-dir", "--work-tree"),
    "kubectl": ("-n", "--namespace", "--context", "--kubeconfig"),
    "docker": ("-H", "--context"),
    "gh": ("-R", "--repo"),
    "npm": ("--prefix", "-w", "--workspace"),
    "pnpm": ("--filter", "-C", "-F", "--dir"),
    "yarn": ("--cwd",),
    "make": ("-C", "-f", "-j"),
    "helm": ("-n", "--namespace"),
    "mvn": ("-f", "-pl"),
}
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "ash", "fish"})
WINDOWS_SHELLS = {"cmd": ("/c", "/k"), "powershell": ("-command", "-c"), "pwsh": ("-command", "-c")}

KEYWORDS = frozenset({"do", "then", "else", "elif", "if", "while", "until", "!"})
# What stands where a command would, and does nothing by itself.
NEUTRAL = frozenset({"done", "fi", "esac", "for", "case", "select", "in", "break", "continue", "return", "exit", "export", "local"})
# What stands before or after the command that a line is about.
ASIDE = frozenset({"", "cd", "pushd", "popd", "chdir", "set-location", "echo", "set", "sleep", "export", ":", "true", "source", "."})
