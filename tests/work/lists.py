"""Work that goes through a list of things, one by one, each of which turns out like the others."""

import json
from random import Random

from tests.work.steps import NAMES, Pattern, Said, edit, one, shell


def classify_batch(_random: Random) -> Said:
    """A classifier as a tool: most are harmless."""
    said = json.dumps(
        {"label": "benign", "scores": {"benign": 0.98, "spam": 0.01, "abuse": 0.01}, "model": "guard-2", "threshold": 0.5, "flagged": False}
    )
    return [one("check_text", {"text": f"comment {w}"}, said) for w in NAMES]


def validate_batch(_random: Random) -> Said:
    said = json.dumps(
        {
            "valid": True,
            "errors": [],
            "warnings": [],
            "schema": "https://example.org/schema/v2.json",
            "checked_rules": 24,
            "skipped_rules": 0,
        },
        indent=1,
    )
    return [one("validate_document", {"path": f"d/{w}.json"}, said) for w in NAMES]


def blank_pages(_random: Random) -> Said:
    """A scan: many pages without text."""
    return [one("read_pdf_page", {"page": n}, "[no text on this page]") for n in range(9)] + [
        one("read_pdf_page", {"page": 10}, "Chapter 1\nIt was\n")
    ]


def weather_days(_random: Random) -> Said:
    return [
        one(
            "get_forecast",
            {"city": c},
            '{"sky": "clear", "temp_c": 21, "wind": "calm", "alerts": [], "source": "met", "units": "metric", "confidence": "high"}',
        )
        for c in ["Rome", "Bari", "Pisa", "Lecce", "Turin", "Genoa", "Milan", "Parma", "Siena", "Lucca", "Como"]
    ]


def calendar_free(_random: Random) -> Said:
    said = json.dumps({"busy": [], "timezone": "Europe/Berlin", "working_hours": {"start": "09:00", "end": "17:00"}, "errors": []})
    return [
        one("get_availability", {"person": f"{w}@example.org"}, said)
        for w in ["ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lea"]
    ]


def chinese(_random: Random) -> Said:
    return [m for n in range(9) for m in (edit(n), one("运行测试", {"目录": "测试"}, "测试失败 3 个用例未通过\n断言错误"))]


def japanese_wait(_random: Random) -> Said:
    return [one("ジョブ状態", {"id": 1}, "実行中")] * 4 + [one("ジョブ状態", {"id": 1}, "完了")]


def german_batch(_random: Random) -> Said:
    return [one("datensatz_aktualisieren", {"nr": n}, "Erfolgreich gespeichert.") for n in range(20)]


def french_search(_random: Random) -> Said:
    return [one("rechercher", {"mot": w}, "Aucun résultat.") for w in NAMES]


def russian_errors(_random: Random) -> Said:
    return [one("прочитать_файл", {"путь": f"/{w}"}, "Ошибка: файл не найден") for w in "abcdef"]


def link_checks(_random: Random) -> Said:
    return [
        shell(
            f"curl -sIL https://example.org/{w} | head -5",
            "HTTP/2 200\ncontent-type: text/html; charset=utf-8\nserver: nginx\ncache-control: max-age=600\nvary: accept",
        )
        for w in NAMES
    ]


def link_checks_404(_random: Random) -> Said:
    return [
        shell(
            f"curl -sI https://example.org/{w} | head -4", "HTTP/2 404\ncontent-type: text/html; charset=utf-8\nserver: nginx\nvary: accept"
        )
        for w in NAMES
    ]


def grep_each_file(_random: Random) -> Said:
    return [shell(f"grep -n 'DEBUG' src/{w}.py", "") for w in NAMES]


def simulate(_random: Random) -> Said:
    return [
        one(
            "simulate",
            {"seed": n, "agents": 100},
            '{"winner": "none", "steps": 1000, "converged": false, "log": "no events were recorded during this simulation run at all"}',
        )
        for n in range(12)
    ]


def generate_variants_said_same(_random: Random) -> Said:
    """The same picture is asked for five times; the answer does not tell them apart."""
    return [one("generate_image", {"prompt": "a cat", "seed": n}, "Image generated.") for n in range(9)]


def notify_progress(_random: Random) -> Said:
    return [m for n in range(12) for m in (shell(f"./convert {n}.wav", ""), one("notify", {"message": "One more file converted."}, "ok"))]


WORK: dict[str, Pattern] = {
    pattern.__name__: pattern
    for pattern in (
        classify_batch,
        validate_batch,
        blank_pages,
        weather_days,
        calendar_free,
        chinese,
        japanese_wait,
        german_batch,
        french_search,
        russian_errors,
        link_checks,
        link_checks_404,
        grep_each_file,
        simulate,
        generate_variants_said_same,
        notify_progress,
    )
}
