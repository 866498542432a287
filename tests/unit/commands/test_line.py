"""What a command line does."""

import time

import pytest

from proxy.commands import Line, read_line

LOOKS = """
git status
git -C /srv/app log --oneline -5 2>/dev/null
git diff origin/main...HEAD --name-status
git branch -a
git remote -v
git tag --list
sudo -u bob id
env FOO=1 BAR=2 pytest -q
A=1 B=2 pytest
cd /srv/app && git status
cd app; pwd
(cd app && git status)
{ pwd; }
! git diff --quiet
time git status
nice -n 5 pytest
timeout 30 pytest -x
timeout -k 5 30s pytest
nohup pytest 2>&1
echo hi > /dev/null
echo hi >&2
pytest < /dev/null
pytest 2>&1 | tee /dev/null
bash -c "git status"
sh -lc 'cd app && git log'
bash -c 'bash -c "pwd"'
sed -n '1,20p' notes.txt
awk '{print $1}' notes.txt
sort -u notes.txt
curl -s http://localhost:1/health
curl -I http://localhost:1
curl -X GET http://localhost:1
curl -XHEAD http://localhost:1
curl -s -o /dev/null -w '%{http_code}' http://localhost:1
wget --spider http://localhost:1
wget -qO- http://localhost:1
psql -c 'select 1 from t'
sqlite3 a.db .tables
sqlite3 a.db "select 1"
date +%s
hostname
ip addr
[ -f x ] && echo yes
true
kubectl -n web get pods
docker ps -a
gh pr view 3
npm test
npm --prefix app run lint
npx tsc --noEmit
make -C app test
python -m pytest -q
/usr/bin/git status
./node_modules/.bin/eslint src
.venv/bin/pytest
Git.exe status
Get-Process | Select-Object Name
powershell -Command "Get-Process"
pwsh -c Get-Date
cmd /c ver
if git diff --quiet; then echo same; fi
for i in 1 2; do pytest; done
echo 'it does not end
""".strip().split("\n")

SEARCHES = """
ls -la
ls
cat a.txt | head -3
grep -rn "x y" src | wc -l
find . -name '*.py'
find . -name '*.py' -exec grep -l foo {} \\;
find . -type f -print0 | xargs -0 grep -n foo
tail -n 20 out.log
rg --json foo
ls ${HOME}/{a,b}
cmd /c dir
Get-ChildItem | Select-String foo
cat <<< hello
head -c 10 < notes.txt
""".strip().split("\n")

CHANGES = """
rm -rf x
git commit -m done
git branch new
git tag v1
git remote add o u
git stash
git fetch origin && git status
git -C
git
echo hi > notes.txt
echo hi >> notes.txt
git status &> notes.txt
cat notes.txt | tee copy.txt
echo $(rm x)
echo "$(rm x)"
echo "`rm x`"
echo `rm x`
diff <(sort a) b
find . -delete
find . -exec rm {} \\;
find . -fprint out
sed -i s/a/b/ notes.txt
sed -ni p notes.txt
sed 's/a/b/w out.txt' notes.txt
awk '{print > "out"}' notes.txt
awk 'BEGIN {system("rm x")}'
sort -o out notes.txt
curl -X POST http://localhost:1
curl -XDELETE http://localhost:1
curl -X
curl -d a=1 http://localhost:1
curl --data-raw a http://localhost:1
curl -o out http://localhost:1
wget http://localhost:1/a.tgz
psql -c 'delete from t'
psql mydb
date -s 12:00
hostname web
ip link set eth0 up
python3 -c 'print(1)'
python manage.py migrate
node build.js
npm install
make
make -C app
bash deploy.sh
bash
bash -c
bash -x deploy.sh
powershell deploy.ps1
cmd
eslint --fix src
pytest --snapshot-update
ruff check --fix .
xargs -n1 rm
sudo rm x
unknown-tool
./ls
\uff4c\uff53
l\u0455
aid board
""".strip().split("\n")

WAITS = """
sleep 60
sleep 60; tail -n 5 scan.log
sleep 5 &
tail -f out.log
tail -20f out.log
watch -n 1 date
while ! curl -s http://localhost:1; do sleep 2; done
for i in 1 2 3; do sleep 5; done
timeout /t 5
Start-Sleep -Seconds 5
kubectl wait --for=condition=ready pod/x
kubectl rollout status deploy/x
gh run watch 1
gh pr checks --watch
docker wait web
wait
bash -c 'sleep 5'
""".strip().split("\n")

NOTHING = ["", "   ", ";;", "&& ||", "A=1", "done", "2>&1", "\n\n", "!", "for x in a b", "export A=1", "env", "sudo", "nice"]


@pytest.mark.parametrize("text", LOOKS)
def test_a_line_that_only_looks(text: str) -> None:
    """By the commands in it, whatever stands around them."""
    line = read_line(text)
    assert (line.changes, line.waits, line.searches) == (False, False, False)


@pytest.mark.parametrize("text", SEARCHES)
def test_a_line_that_looks_for_something(text: str) -> None:
    """It may find nothing, and that is an answer."""
    line = read_line(text)
    assert (line.changes, line.waits, line.searches) == (False, False, True)


@pytest.mark.parametrize("text", CHANGES)
def test_a_line_that_may_change_something(text: str) -> None:
    """What is not known to look; also one such command among others, a file written, or a command within a command."""
    line = read_line(text)
    assert (line.changes, line.waits, line.searches) == (True, False, False)


@pytest.mark.parametrize("text", WAITS)
def test_a_line_that_waits(text: str) -> None:
    """One of its commands lets time pass."""
    assert read_line(text).waits


@pytest.mark.parametrize("text", NOTHING)
def test_a_line_that_does_nothing(text: str) -> None:
    """Nothing is changed, and there is no program it is about."""
    assert read_line(text) == Line()


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("cd app && python3 a.py", "python3"),
        ("sleep 5; sudo -u bob /usr/bin/tail -3 x", "tail"),
        ("bash -lc 'cd app && cargo test'", "cargo"),
        ("X=1 make", "make"),
        ("cd app", ""),
        ("find . -exec rm {} +", "find"),
        ("a" * 200, "a" * 80),
    ],
)
def test_the_program_a_line_is_about(text: str, program: str) -> None:
    """The first that is run to some purpose, without its wrappers and its folder."""
    assert read_line(text).program == program


def test_shells_in_shells_are_followed_only_so_far() -> None:
    """What lies deeper may do anything."""
    assert not read_line("bash -c 'bash -c pwd'").changes
    text = "pwd"
    for _ in range(6):
        text = "bash -c " + "'" + text.replace("'", "'\\''") + "'"
    assert read_line(text).changes


@pytest.mark.parametrize("text", ["ls " * 1_500, "git status" + " " * 5_000])
def test_a_very_long_line_is_not_read(text: str) -> None:
    """It is a program of its own."""
    assert read_line(text).changes


@pytest.mark.parametrize(
    "unit",
    ["'", '"', "\\", "`", "$(", "{", "(", "a'\"'", "2>&1", "<<", "-", "$", "${", "ls;", "find -exec ", "x=", "awk print ", "bash -c "],
)
def test_no_line_takes_long(unit: str) -> None:
    """Nothing is tried again and again: hostile lines of the greatest length are read at once."""
    text = (unit * 4_096)[:4_096]
    started = time.process_time()
    read_line(text)
    assert time.process_time() - started < 5  # linear work takes milliseconds; what backtracks takes minutes
