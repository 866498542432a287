"""Work on code beyond edits and tests: searching for what is not there, merging, building, trying things out."""

import json
from random import Random

from tests.work.steps import NAMES, Pattern, Said, edit, one, patch, seconds, shell


def bisect(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (
            shell(
                "git bisect good" if n % 2 else "git bisect bad",
                f"Bisecting: {2 ** (9 - n)} revisions left to test after this (roughly {9 - n} steps)\n[{n:07x}] commit {n}",
            ),
            shell("make test", "1 failed, 3 passed\nmake: *** [test] Error 1"),
        )
    ]


def apply_patch_then_reread(_random: Random) -> Said:
    bad = "Error: Failed to find expected lines in /repo/src/app.rs:\n    let a = 1;"
    return [
        m
        for n in range(4)
        for m in (
            one("apply_patch", {"input": f"*** Update File: src/app.rs\n-let a = {n};\n+let b = {n};"}, bad),
            shell("sed -n '1,80p' src/app.rs", "fn main\nlet a=1\n"),
        )
    ] + [patch(1)]


def lsp_diagnostics(_random: Random) -> Said:
    """Diagnostics after each edit, the same two for long."""
    said = "app.ts:10:5 error TS2322: Type 'string' is not assignable\napp.ts:12:1 warning: unused"
    return [m for n in range(12) for m in (edit(n), one("lsp_diagnostics", {"filePath": "/repo/src/app.ts"}, said))]


def lsp_no_diagnostics(_random: Random) -> Said:
    """File by file, all clean."""
    return [one("getDiagnostics", {"uri": f"file:///repo/src/m{w}.ts"}, "No diagnostics found") for w in "abcdefghijklmnop"]


def lsp_no_diagnostics_verbose(_random: Random) -> Said:
    said = json.dumps(
        [{"uri": "file:///x", "diagnostics": []}, {"linter": "eslint", "messages": []}, {"linter": "tsc", "messages": [], "duration": 0}],
        indent=1,
    )
    return [one("getDiagnostics", {"uri": f"file:///repo/src/m{w}.ts"}, said) for w in "abcdefghijklmnop"]


def references(_random: Random) -> Said:
    """Is anything of this used? Nothing is."""
    return [
        one("find_references", {"symbol": f"{w}Helper"}, "No references found")
        for w in ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
    ]


def greps_for_dead_code(_random: Random) -> Said:
    return [
        shell(f"grep -rn '{w}Helper(' src/ | grep -v 'def '", "")
        for w in ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
    ]


def greps_ci(_random: Random) -> Said:
    """rg with exit status 1."""
    return [
        shell(f"rg -n '{w}_helper' src", "[exit code: 1]")
        for w in ["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
    ]


def fix_flaky(random: Random) -> Said:
    """Is the test flaky? It is run ten times as it stands."""
    return [shell("pytest -q tests/test_flaky.py", f"1 passed in {seconds(random)}") for n in range(4)] + [
        shell("for i in 1 2 3 4 5 6; do pytest -q tests/test_flaky.py; done", "6x ok")
    ]


def final_checks(_random: Random) -> Said:
    """At the end everything is run again."""
    test, lint, build = (shell("npm test", "Tests: 41 passed"), shell("npm run lint", "no problems"), shell("npm run build", "built"))
    return [m for n in range(4) for m in (edit(n), test, lint, build)] + [
        test,
        lint,
        build,
        shell("git status --short", " M a"),
        shell("git diff --stat", " a | 2 +-"),
        test,
        lint,
    ]


def verify_by_reading(_random: Random) -> Said:
    return [
        m
        for w in "abcdef"
        for m in (
            one("Write", {"file_path": f"/r/{w}.md", "content": w}, "File created"),
            one("Read", {"file_path": f"/r/{w}.md"}, f"1\t{w}"),
            one("Glob", {"pattern": "/r/*.md"}, "\n".join(f"/r/{v}.md" for v in "abcdef" if v <= w)),
        )
    ]


def ls_after_each_write(_random: Random) -> Said:
    return [m for n in range(12) for m in (shell(f"cp tpl.txt out/{n}.txt", ""), shell("ls out | wc -l", f"{n + 1}"))]


def conflict_resolution(_random: Random) -> Said:
    """git rebase --continue, conflict after conflict in one file."""
    cont = shell(
        "git add -A && GIT_EDITOR=true git rebase --continue",
        "CONFLICT (content): Merge conflict in src/app.py\nerror: could not apply\nhint: Resolve all conflicts",
    )
    return [m for n in range(9) for m in (edit(n), cont)]


def docker_builds(_random: Random) -> Said:
    said = '#9 ERROR: failed to solve: process "/bin/sh -c npm ci" did not complete successfully: exit code: 1'
    return [m for n in range(9) for m in (edit(n), shell("docker build -t app .", said))]


def many_packages_checked(_random: Random) -> Said:
    """A monorepo: package by package the same report."""
    said = "\n> tsc --noEmit\n\nDone in 1.2s.\nNo errors."
    return [shell(f"cd packages/{w} && npx tsc --noEmit", said) for w in NAMES]


def curl_health(_random: Random) -> Said:
    said = json.dumps(
        {
            "status": "healthy",
            "checks": {"db": "ok", "cache": "ok", "queue": "ok"},
            "version": "1.4.2",
            "region": "eu-west-1",
            "warnings": [],
        }
    )
    return [shell(f"curl -s https://{w}.internal/health", said) for w in NAMES]


def namespaces(_random: Random) -> Said:
    return [shell(f"kubectl get pods -n {w}", "No resources found in namespace.") for w in NAMES]


def license_headers(_random: Random) -> Said:
    head = "# Copyright 2024 The Authors\n# SPDX-License-Identifier: Apache-2.0\n#\n# Licensed under the Apache License"
    return [shell(f"head -4 src/{w}.py", head) for w in NAMES]


def license_headers_read(_random: Random) -> Said:
    head = "# Copyright 2024 The Authors\n# SPDX-License-Identifier: Apache-2.0\n#\n# Licensed under the Apache License"
    return [one("read_file", {"path": f"src/{w}.py", "limit": 4}, head) for w in NAMES]


def empty_inits_reminder(_random: Random) -> Said:
    said = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
    return [one("Read", {"file_path": f"src/{w}/__init__.py"}, said) for w in NAMES]


def same_module_in_many(_random: Random) -> Said:
    """Is the vendored copy the same everywhere?"""
    text = "export function cx(...a) {\n  return a.filter(Boolean).join(' ')\n}\n"
    return [one("read_file", {"path": f"packages/{w}/cx.ts"}, text) for w in NAMES]


def openhands_ipython_same_footer(_random: Random) -> Said:
    """Cells that say nothing but the client's own footer."""
    return [
        one(
            "execute_ipython_cell",
            {"code": f"plot({w!r})"},
            "[Jupyter current working directory: /workspace]\n[Jupyter Python interpreter: /usr/bin/python]\nok",
        )
        for w in NAMES
    ]


def swe_agent_edit_syntax(_random: Random) -> Said:
    """Edits that the linter refuses until one fits."""
    said = (
        "Your proposed edit has introduced new syntax error(s). Please read this error message carefully and then retry editing the file."
        "\n\nERRORS:\n- E999 IndentationError: unexpected indent\n\nThis is how your edit would have looked if applied\n---\n{}\n---\n"
        "DO NOT re-run the same failed edit command."
    )
    return [shell(f"edit 10:1{n}\nfoo({n})\nend_of_edit", said.format(n)) for n in range(6)] + [
        shell("edit 10:12\nbar\nend_of_edit", "[File: a.py]\nok")
    ]


def swe_agent_search(_random: Random) -> Said:
    return [shell(f'search_dir "{w}_helper" src', f'No matches found for "{w}_helper" in /repo/src') for w in NAMES]


def swe_agent_python_repro(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (
            shell(f"edit 1:{n}\nprint({n})\nend_of_edit", f"[File: r.py]\nprint({n})"),
            shell("python r.py", 'Traceback (most recent call last):\n  File "r.py", line 1\nAssertionError'),
        )
    ]


def heredoc_scripts_that_fail(_random: Random) -> Said:
    return [
        shell(
            f"python3 << 'EOF'\nx = {w}()\nEOF",
            f"""Traceback (most recent call last):\n  File "<stdin>", line 1\nNameError: name '{w}' is not defined""",
        )
        for w in NAMES
    ]


def ctf_payloads(_random: Random) -> Said:
    """A service that says the same to every wrong guess."""
    return [shell(f"echo '{w}' | nc chal 1337", "Welcome to the vault!\nEnter the password:\nWrong password.\nBye") for w in NAMES]


def ctf_offsets(_random: Random) -> Said:
    return [shell(f"""python3 -c "print('A'*{n})" | ./vuln; echo $?""", "Enter your name:\nHello!\n0") for n in range(16, 140, 8)] + [
        shell("python3 -c \"print('A'*140)\" | ./vuln; echo $?", "Segmentation fault\n139")
    ]


def decode_tries(_random: Random) -> Said:
    return [shell(f"echo aGk= | {c}", f"bash: {c}: command not found") for c in ("b32", "rot", "xor", "uud")] + [
        shell("echo aGk= | base64 -d", "hi")
    ]


def binwalk(_random: Random) -> Said:
    return [
        shell(f"strings a.bin | grep -i {w}", "")
        for w in ("flag", "ctf", "key", "pass", "secret", "pico", "htb", "token", "admin", "hint", "root")
    ] + [shell("binwalk a.bin", "0 PNG\n41 ZIP")]


def git_add_commit_each(_random: Random) -> Said:
    return [
        m
        for w in NAMES
        for m in (shell(f"git add src/{w}.py", ""), shell(f"git commit -q -m 'Add {w}'", ""), shell("git status --short | head -5", ""))
    ]


def git_status_between_reads(_random: Random) -> Said:
    """A careful model: the state before each of seven files."""
    return [m for n in range(7) for m in (shell("git status --short", ""), one("Read", {"file_path": f"/r/{n}.py"}, f"1\tx = {n}"))]


def which_tools(_random: Random) -> Said:
    return [
        shell(f"which {w}", "")
        for w in ("gdb", "rr", "perf", "strace", "ltrace", "valgrind", "bpftrace", "sysdig", "heaptrack", "hotspot", "uftrace")
    ]


def fuzz(_random: Random) -> Said:
    return [shell(f"./fuzz --seed {n}", "executions: 10000\ncrashes: 0\ncoverage: 81 %") for n in range(14)]


def param_sweep(_random: Random) -> Said:
    return [
        shell(f"python train.py --lr {lr} --quick | tail -3", "accuracy 0.50\nloss 0.693\nfinished")
        for lr in (1, 0.5, 0.3, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.0005)
    ]


def cursor_lints(_random: Random) -> Said:
    return [
        m
        for n in range(10)
        for m in (
            one("search_replace", {"file_path": "a.py", "old_string": f"{n}", "new_string": "x"}, "The file a.py has been updated."),
            one("read_lints", {"paths": ["a.py"]}, "No linter errors found."),
        )
    ]


def load_deferred(_random: Random) -> Said:
    return [one("ToolSearch", {"query": f"select:{w}"}, "No matching deferred tools found") for w in NAMES[:7]] + [
        one("ToolSearch", {"query": "file"}, "found")
    ]


WORK: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        bisect,
        apply_patch_then_reread,
        lsp_diagnostics,
        lsp_no_diagnostics,
        lsp_no_diagnostics_verbose,
        references,
        greps_for_dead_code,
        greps_ci,
        fix_flaky,
        final_checks,
        verify_by_reading,
        ls_after_each_write,
        conflict_resolution,
        docker_builds,
        many_packages_checked,
        curl_health,
        namespaces,
        license_headers,
        license_headers_read,
        empty_inits_reminder,
        same_module_in_many,
        openhands_ipython_same_footer,
        swe_agent_edit_syntax,
        swe_agent_search,
        swe_agent_python_repro,
        heredoc_scripts_that_fail,
        ctf_payloads,
        ctf_offsets,
        decode_tries,
        binwalk,
        git_add_commit_each,
        git_status_between_reads,
        which_tools,
        fuzz,
        param_sweep,
        cursor_lints,
        load_deferred,
    )
}
