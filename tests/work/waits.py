"""Work that waits for others, and the notes that agents keep meanwhile."""

import json
from random import Random

from tests.work.steps import NONE, Pattern, Said, edit, one, shell


def deploy_polling(_random: Random) -> Said:
    """Vercel MCP: the state inside an object."""
    said = json.dumps({"id": "dpl_1", "url": "app.vercel.app", "readyState": "BUILDING", "target": "production"})
    return [one("get_deployment", {"idOrUrl": "dpl_1"}, said)] * 12 + [
        one("get_deployment", {"idOrUrl": "dpl_1"}, said.replace("BUILDING", "READY"))
    ]


def ci_polling(_random: Random) -> Said:
    said = json.dumps({"workflow_runs": [{"id": 1, "status": "in_progress", "conclusion": None}], "total_count": 1})
    return [one("list_workflow_runs", {"repo": "a/b"}, said)] * 9 + [
        one("list_workflow_runs", {"repo": "a/b"}, said.replace("in_progress", "completed"))
    ]


def subprocess_output(_random: Random) -> Said:
    """Cursor-like: the terminal is read until the server is up."""
    return [one("get_terminal_output", {"id": "t1"}, "> vite dev\n")] * 4 + [
        one("get_terminal_output", {"id": "t1"}, "> vite dev\nready in 400 ms")
    ]


def kill_and_restart(_random: Random) -> Said:
    """A dev server, started again after each edit."""
    return [
        m
        for n in range(9)
        for m in (
            edit(n),
            shell("pkill -f 'vite' ; sleep 1; npm run dev > dev.log 2>&1 &", ""),
            shell("curl -s localhost:5173 | head -3", "<!doctype html>\n<html>\n<head>"),
        )
    ]


def rate_limits(_random: Random) -> Said:
    """429, again and again, then it works."""
    return [one("web_search", {"query": "pump"}, "Error: 429 Too Many Requests")] * 3 + [one("web_search", {"query": "pump"}, "1. a\n2. b")]


def rate_limits_with_pause(_random: Random) -> Said:
    lim = one("create_issue", {"title": "a"}, "Error: API rate limit exceeded. Retry after 30 seconds.")
    return [m for _ in range(6) for m in (lim, one("wait", {"seconds": 30}, "Waited 30 seconds"))] + [
        one("create_issue", {"title": "a"}, "#12")
    ]


def lock_wait(_random: Random) -> Said:
    return [
        m
        for _ in range(6)
        for m in (
            shell(
                "apt-get install -y jq", "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (unattended-upgr)"
            ),
            shell("sleep 20", ""),
        )
    ] + [shell("apt-get install -y jq", "ok")]


def approval(_random: Random) -> Said:
    """A person has to approve; the tool says so until then."""
    return [one("check_approval", {"request": "r1"}, "Awaiting approval from manager.")] * 7 + [
        one("check_approval", {"request": "r1"}, "Approved.")
    ]


def dns_propagation(_random: Random) -> Said:
    return [m for _ in range(10) for m in (shell("dig +short app.example.org", ""), shell("sleep 60", ""))]


def queue_worker(_random: Random) -> Said:
    """A worker agent: the next item, until there is none."""
    return [m for n in range(20) for m in (one("get_next_task", NONE, f"task {n}: resize {n}.png"), one("complete_task", {"id": n}, "ok"))]


def queue_worker_empty(_random: Random) -> Said:
    return [one("receive_message", {"queue": "q", "wait_seconds": 20}, '{"messages": []}')] * 9 + [
        one("receive_message", {"queue": "q", "wait_seconds": 20}, '{"messages": ["a"]}')
    ]


def todo_unchanged(_random: Random) -> Said:
    """The list is read before each step."""
    return [m for n in range(14) for m in (one("TodoRead", NONE, "1. a\n2. b"), edit(n))]


def todo_same_write(_random: Random) -> Said:
    given = {"todos": [{"content": "a", "status": "in_progress"}]}
    return [m for n in range(9) for m in (one("TodoWrite", given, "Todos have been modified successfully."), edit(n))]


def sequential_thoughts(_random: Random) -> Said:
    return [
        one(
            "sequentialthinking",
            {"thought": f"thought {n}", "thoughtNumber": n, "totalThoughts": 12, "nextThoughtNeeded": True},
            json.dumps({"thoughtNumber": n, "totalThoughts": 12, "nextThoughtNeeded": True, "branches": [], "thoughtHistoryLength": n}),
        )
        for n in range(12)
    ]


def same_thought(_random: Random) -> Said:
    return [
        m
        for n in range(8)
        for m in (
            one("think", {"thought": "Let me check the next file."}, "Your thought has been logged."),
            one("read_file", {"path": f"{n}.py"}, f"x = {n}\ny"),
        )
    ]


def update_plan_codex(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (
            one("update_plan", {"plan": [{"step": "a", "status": "in_progress"}]}, "Plan updated"),
            shell(f"sed -n '{n}0,{n}9p' a.py", f"line {n}\nline"),
        )
    ]


def report_progress(_random: Random) -> Said:
    """Copilot: progress is reported after each part."""
    return [
        m
        for n in range(12)
        for m in (
            edit(n),
            one(
                "report_progress", {"commitMessage": "Apply review comments", "prDescription": "- [x] a"}, "Progress reported successfully"
            ),
        )
    ]


def memory_writes(_random: Random) -> Said:
    return [m for n in range(10) for m in (one("core_memory_append", {"label": "human", "content": f"likes {n}"}, "None"), f"Noted {n}.")]


def log_step(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (
            edit(n),
            one("mcp__linear__create_comment", {"issueId": "ENG-1", "body": "Progress update: one more file migrated."}, "Comment created"),
        )
    ]


def terminus(_random: Random) -> Said:
    scr = "root@box:/app# make\n[ 10%] Building"
    return [
        one("execute_commands", {"commands": [{"keystrokes": "", "duration": 30.0}], "analysis": f"still building {n}"}, scr)
        for n in range(9)
    ]


def mle_train(_random: Random) -> Said:
    return [
        m
        for n in range(8)
        for m in (
            shell("sleep 300; tail -2 train.log", f"epoch {n}\nloss {1 / (n + 1):.3f}"),
            shell("nvidia-smi --query-gpu=utilization.gpu --format=csv", "utilization.gpu [%]\n98 %\n98 %"),
        )
    ]


def mle_ls_submission(_random: Random) -> Said:
    return [
        m
        for n in range(9)
        for m in (shell("ls submission.csv", "ls: cannot access 'submission.csv': No such file or directory"), shell("sleep 120", ""))
    ]


def retry_upload(_random: Random) -> Said:
    return [
        m
        for n in range(4)
        for m in (
            one("upload_file", {"path": "a.zip"}, "Error: 503 Service Unavailable, please try again later"),
            one("wait", {"seconds": 10}, "ok"),
        )
    ] + [one("upload_file", {"path": "a.zip"}, "uploaded")]


def retry_llm(_random: Random) -> Said:
    return [one("generate_image", {"prompt": "cat"}, "Error: model overloaded, please retry")] * 5 + [
        one("generate_image", {"prompt": "cat"}, "image:1")
    ]


def subagent_wait(_random: Random) -> Said:
    return [one("wait_agent", {"ids": ["a1"], "timeout_ms": 30000}, '{"status": {}, "timed_out": true}')] * 9 + [
        one("wait_agent", {"ids": ["a1"], "timeout_ms": 30000}, '{"status": {"a1": "completed"}, "timed_out": false}')
    ]


WORK: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        deploy_polling,
        ci_polling,
        subprocess_output,
        kill_and_restart,
        rate_limits,
        rate_limits_with_pause,
        lock_wait,
        approval,
        dns_propagation,
        queue_worker,
        queue_worker_empty,
        todo_unchanged,
        todo_same_write,
        sequential_thoughts,
        same_thought,
        update_plan_codex,
        report_progress,
        memory_writes,
        log_step,
        terminus,
        mle_train,
        mle_ls_submission,
        retry_upload,
        retry_llm,
        subagent_wait,
    )
}
