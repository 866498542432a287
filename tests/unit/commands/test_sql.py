"""SQL statements: does one only read?"""

import pytest

from proxy.commands import sql_reads


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "  SELECT * FROM t WHERE a = 'b';",
        "(select 1)",
        "explain select 1",
        "with x as (select 1) select * from x",
        "show tables",
        "\\dt",
        ".tables",
    ],
)
def test_a_statement_that_reads(text: str) -> None:
    """By its first word."""
    assert sql_reads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "delete from t",
        "select 1; drop table t",
        "with x as (delete from t returning 1) select * from x",
        "select * into u from t",
        "explain analyze update t set a = 1",
        "selection of things",
        "vacuum",
        "select 1" + " " * 5_000,
    ],
)
def test_a_statement_that_may_change_something(text: str) -> None:
    """By its first word, by any other, or because it is too long to be read."""
    assert not sql_reads(text)
