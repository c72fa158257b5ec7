"""What is masked and what is not; marks, and how they turn back into what a file holds."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.store import secret_names, secrets
from sakti.store.database import Store
from sakti.store.secrets import MARK, find_marks, mask_lines, mask_secrets, mask_value, reveal_marks
from tests.fakes.secrets import KINDS, ORDINARY, PEM, TEMPTING

PAIRS = pytest.mark.parametrize(("text", "secret"), KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def no_environment() -> Iterator[None]:
    secrets.use_environment({})
    yield
    secrets.use_environment({})


@PAIRS
def test_every_kind_is_masked(text: str, secret: str) -> None:
    assert secret in text
    clean = mask_secrets(text)
    assert secret not in clean and MARK.search(clean)
    assert mask_secrets(clean) == clean


@PAIRS
def test_every_kind_is_masked_within_other_text(text: str, secret: str) -> None:
    for around in ("{}", "before {} after", "x\n+{}\ny", "x\n-{}\ny", "12\t{}", "İ {}", "🦭 {}\n\n"):
        assert secret not in mask_secrets(around.format(text))
    escaped = json.dumps({"output": text})
    if "\n" not in secret:
        assert secret not in mask_secrets(escaped)
    assert mask_value(json.loads(escaped)) == {"output": mask_secrets(text)}


@pytest.mark.parametrize(
    "text",
    [
        "password = getPassword(user)",
        "password: str",
        "password: Optional[str] = None",
        "token = self.next_token",
        "token = tokens[i]",
        "key = lambda x: x",
        "PASSWORD=$DB_PASSWORD",
        "PASSWORD=${DB_PASSWORD}",
        "password: <your password>",
        "password: {{ db_password }}",
        "api_key = settings.API_KEY",
        'api_key = "your_api_key_here"',
        'password = os.environ["PASSWORD"]',
        '"key": "content-length"',
        'secret_name = "my-secret-name"',
        "secretKeyRef: my-app-secret",
        "tokenizer = BertTokenizer1",
        "token_type: Bearer",
        "primary_key=True",
        '"max_tokens": 128000000',
        "password_file: /run/secrets/x1",
        "password=********",
        "The token is expired1234",
        "basic understanding of the password",
        'if "-----BEGIN PRIVATE KEY-----" in text and "-----END PRIVATE KEY-----" in text:',
        "class sk-estimator-doc-link-fitted",
        "http://user:pass@host/ and https://foo:$PASSWORD@host",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "const risk-assessment-of-the-whole-project",
        "sk_CMS_RevocationInfoChoice_set_cmp_func(sk, f)",
        'password = "{user}:{1}"',
        "token = '<your-token-1>'",
        'password: "get_password(1)"',
        "secret = '[a-z0-9]{8,}'",
        "PASSWORD=get_password(user1",
        "TOKEN=$(cat token1)",
        'passwords = "a1,b2,c3,d4"',
        "src/models.py:11:    password: str",
        "src/models.py:11:    password = getPassword(user)",
        "+    token = self.next_token",
        "curl -u user:pass https://x.example",
        "curl -u admin:admin https://x.example",
        'curl -u "$USER:$PASS" https://x.example',
        "curl -sS https://x.example/a:bcdefgh",
        '"auth": "required"',
        "src/a.py:5432:class Foo:",
        "arn:aws:logs:*:*:log-group:/aws/lambda",
        "cpe:2.3:a:vendor:product:1.0:*:*:*:*:*:*:*",
        "sed 's/\\(a\\)/$1$2$3/'",
        "https://example.com/o12345@ingest/4500123",
        "#define LONG_NAME_OF_A_MACRO \\\n    another_name",
    ],
)
def test_code_and_placeholders_stay(text: str) -> None:
    assert mask_secrets(text) == text


def test_ordinary_lines_stay_whatever_a_search_prints_in_front_of_them() -> None:
    assert len(ORDINARY) > 100
    prefixes = ("", "a b.py:3:", "a.py-3-", "+", "x.py\0003:", "\x1b[35ma.py\x1b[m\x1b[36m:\x1b[m")
    assert not [t for line in ORDINARY for p in prefixes if mask_secrets(t := p + line) != t]


def test_lines_that_tempt_the_rules_for_pairs_tables_and_commands_stay() -> None:
    prefixes = ("", "a b.py:3:", "a.py-3-", "+", "x.py\0003:", "\x1b[35ma.py\x1b[m\x1b[36m:\x1b[m")
    assert not [t for line in TEMPTING for p in prefixes if mask_secrets(t := p + line) != t]
    assert mask_secrets("\n".join(TEMPTING)) == "\n".join(TEMPTING)


def test_ordinary_code_is_hardly_ever_masked() -> None:
    lines = hits = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_text("utf-8", "replace")
        lines += text.count("\n")
        hits += len(secrets.find_secrets(text))
        if lines > 30_000:
            break
    assert lines > 20_000 and hits * 1_000 <= lines


def test_the_value_alone_is_masked_and_the_mark_tells_the_kind() -> None:
    assert MARK.sub(r"<\1>", mask_secrets("DB_PASS=hunter2hunter2 # x")) == "DB_PASS=<password> # x"
    assert MARK.sub(r"<\1>", mask_secrets("postgres://ann:s3cret-9@db/x")) == "postgres://ann:<password>@db/x"
    assert find_marks(mask_secrets("a PASSWORD=hunter2hunter2")) == find_marks(
        mask_secrets("export DB_PASS='hunter2hunter2'")
    )
    first, second = (mask_secrets(f"password={word}") for word in ("hunter2hunter2", "hunter3hunter3"))
    assert first != second


async def test_marks_are_equal_within_one_database_and_differ_between_two(tmp_path: Path) -> None:
    seen: list[str] = []
    for name in ("a.db", "b.db", "a.db"):
        store = await Store.open(tmp_path / name)
        seen.append(mask_secrets("password=hunter2hunter2"))
        await store.close()
    assert seen[0] == seen[2] != seen[1]
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


def test_values_of_the_environment_are_masked_wherever_they_stand() -> None:
    secrets.use_environment({"MY_TOKEN": "quiet-river-stone", "PGPASSWORD": "postgres", "KEY_FILE": "/home/x/keyfile"})
    shown = MARK.sub(r"<\1>", mask_secrets("echo xquiet-river-stonex postgres /home/x/keyfile"))
    assert shown == "echo x<env>x postgres /home/x/keyfile"
    assert "river" not in mask_secrets("curl -u quiet-ri\\\nver-stone") and "stone" not in mask_secrets(
        "quiet-ri\\\nver-stone"
    )
    secrets.use_environment({})
    assert mask_secrets("quiet-river-stone") == "quiet-river-stone"


@PAIRS
def test_every_kind_is_masked_behind_what_a_search_or_a_diff_prints(text: str, secret: str) -> None:
    if "\n" in text:
        return
    for prefix in (
        "cfg.txt:11:",
        "HEAD:src/a-b/cfg.txt:2:",
        "src/cfg.txt-12-",
        "src/cfg.txt:",
        "7:",
        "+",
        "-",
        "> ",
        "< ",
    ):
        assert secret not in mask_secrets(f"first\n{prefix}{text}\nlast"), prefix


def test_a_line_of_yaml_is_masked_behind_what_a_search_or_a_diff_prints() -> None:
    blamed = "3f2a9c81 (Ann 2026-01-02 10:11:12 +0100 4) "
    for prefix in ("cfg.txt:11:", "cfg.txt-11-", "x:", "11:", "+", "-", "+  ", "- - ", blamed):
        assert "battery" not in mask_secrets(f"first\n{prefix}password: correcthorsebattery\nlast"), prefix
    assert "hunter2" not in mask_secrets("x:2:secret: hunter2xx9q")


_GREP = "\x1b[35m\x1b[K{}\x1b[m\x1b[K\x1b[36m\x1b[K:\x1b[m\x1b[K\x1b[32m\x1b[K3\x1b[m\x1b[K\x1b[36m\x1b[K:\x1b[m\x1b[K"
_BLAME = "(Ann (x) B 2026-01-02 10:11:12 +0100 14) "


@pytest.mark.parametrize(
    "prefix",
    [
        *(
            "my file.yml:3:",
            "my other-file.yml-3-",
            "a dir/b c/my file.yml:3:5:",
            "my file.yml:",
            "HEAD:my file.yml:3:",
        ),
        *("./a b.yml:3:  ", "C:\\x y\\a.yml:3:", '"m\\303\\274 b.yml":3:', "a.yml=3=", "a.yml:   3:\t", "a b:3:+"),
        *("a.yml\0", "my file.yml\0003:", "my file.yml\0003\0", "HEAD:my file.yml\0003\0", "my file.yml\u24003:"),
        *(_GREP.format("a.yml"), _GREP.format("my file.yml"), _GREP.format("a.yml").replace("\x1b", "\u241b")),
        *("\x1b[31m-", "\x1b[32m+\x1b[m\x1b[32m", "\x1b[38;5;9m\x1b[1m"),
        *(
            f"3f2a9c81 {_BLAME}",
            f"^3f2a9c8 my file.yml {_BLAME}   ",
            f"3f2a9c81\t{_BLAME[:-1]}",
            f"7:3f2a9c81 {_BLAME}",
        ),
        *(
            "3f2a9c81 14) ",
            f"3f2a9c81 {'d/' * 70}a.yml {_BLAME}",
            f"0000000000 {_BLAME.replace('Ann', 'Not Committed')}",
        ),
        *(
            "     3\t",
            "     3  ",
            "3 ",
            "  3 | ",
            "   3   \u2502 ",
            "a.yml|3| ",
            "| ",
            "> > ",
            "    |  +",
            " +",
            "@@ -1 +1 @@ ",
            "[-",
            "{+",
        ),
    ],
)
def test_a_password_is_masked_behind_what_programs_print_in_front_of_a_line(prefix: str) -> None:
    for line, secret in (
        ("password: correcthorsebattery", "battery"),
        ("DB_PASS=Tr0ub4dor(3)xyz", "dor"),
        ("api_key='k3(z&8q!x@p)2m'", "z&8"),
    ):
        assert secret not in mask_secrets(f"first\n{prefix}{line}\nlast"), line


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("PASSWORD=Tr0ub4dor(3)", "dor"),
        ("PASSWORD=(Tr0ub4dor)3 # new", "dor"),
        ("export PASSWORD=abc(def)9xyz12", "xyz12"),
        ("password: p(8)[2]xyzQ9", "xyzQ9"),
        ("password = 'x(7)y{z}9q'", "9q"),
        ("SECRET_KEY = 'a(b)c9$2k'", "c9$2k"),
        ("SECRET_KEY = '(x8#k2)=w+v'", "k2)"),
        ("SECRET_KEY = '#x8(k2)=w+v7'", "k2)"),
        ("SECRET_KEY='%8h(@z2=k^3f$'", "z2=k"),
        ("SECRET_KEY = '&8h(z2=k^3f('", "z2=k"),
        ("SECRET_KEY = b'(x8#k2)=w+v'", "k2)"),
        ("SECRET_KEY = '''k3(z&8q!x@p)2m'''", "z&8"),
        ("DJANGO_SECRET='x(9!k#2)'", "k#2"),
        ("  <password>Tr0ub4dor(3)xyz</password>", "dor"),
        ("run --password Tr0ub4dor(3)xyz x", "dor"),
        ("PASSWORD=Tr0ub4dor(3)xyz; next", "dor"),
        ("HF_TOKEN=hf_abcdefgh12", "efgh12"),
        ("hf_abcdefghijklmnop1234", "mnop1234"),
        ("SECRET_KEY = 'h8(h)z2<k>3f$'", "z2<k"),
        ("hf_abcDEF123456", "DEF123"),
        ("login --token hf_aB3dE6gH", "dE6gH"),
        ("PASSWORD=\x1b[01;31m\x1b[Khunter2hunter2\x1b[m\x1b[K", "hunter2"),
        ("pass\x1b[01;31m\x1b[Kword\x1b[m\x1b[K: correcthorse\x1b[01;31m\x1b[Kbattery\x1b[m\x1b[K", "battery"),
        ("ghp_16C7e42F292c69\x1b[1m12E7710c838347Ae178B4a\x1b[m", "7710c8"),
    ],
)
def test_values_with_brackets_or_colours_are_masked_to_their_end(text: str, secret: str) -> None:
    assert secret in text and secret not in mask_secrets(f"first\n{text}\nlast")


def test_masking_takes_time_linear_in_the_length_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    prefix = secret_names._LINE_PREFIX
    monkeypatch.setattr(secret_names, "_LINE_PREFIX", _Counting(prefix, looked))
    mask_secrets("pass=a1(b)c2d3e4 " * 2_000)
    assert looked and max(looked) <= 400


class _Counting:
    def __init__(self, pattern: Any, looked: list[int]) -> None:
        self._pattern, self._looked = pattern, looked

    def match(self, line: str) -> Any:
        self._looked.append(len(line))
        return self._pattern.match(line)


@PAIRS
@pytest.mark.parametrize("line_break", ["\\\n", "\\\r\n"])
def test_every_kind_is_masked_when_a_backslash_splits_it(text: str, secret: str, line_break: str) -> None:
    if "\n" in text:
        return
    middle = text.index(secret) + len(secret) // 2
    clean = mask_secrets(f"x \\\n{text[:middle]}{line_break}{text[middle:]} y\\\nz")
    assert secret[len(secret) // 2 :] not in clean and mask_secrets(clean) == clean


@pytest.mark.parametrize("prefix", ["", "11:", ".pgpass:2:", "cfg/pgpass-2-", "+", "-", "12\t"])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("db.example.com:5432:shop:ann:quiet\\:river", "river"),
        ("*:*:*:ann:quietriver7", "river"),
        ("localhost:6432:*:ann:quietriver", "river"),
        ("DB_PASSWORD=a8f3(9dk2x7", "9dk2x7"),
        ("db_password: a8f3{9dk2x7", "9dk2x7"),
    ],
)
def test_a_line_with_a_password_is_masked(prefix: str, text: str, secret: str) -> None:
    clean = mask_secrets(f"first\n{prefix}{text}\nlast")
    assert secret not in clean and clean.startswith("first\n") and clean.endswith("\nlast")


RANDOM = "Zx9qPw7rTb2"


@pytest.mark.parametrize("prefix", ["", "cfg/a.yml:3:", "a.yml-12-", "+", "-", "12\t"])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DB_PASSWORD=Zx9q(Pw7rTb2", "7rTb"),
        ("password: Zx9q(Pw7rTb1", "7rTb"),
        ("db_secret: q7w[e8r5t2y", "r5t2"),
        ("password: correcthorse5", "horse"),
        ("secret: correcthorsebattery", "horse"),
        ("client_secret: correcthorse7", "horse"),
        (f'"identitytoken": "{RANDOM}"', RANDOM),
        (f"bob:{RANDOM}@tcp(h:3306)/db", RANDOM),
        ("bob:river:stone@unix(/run/mysql.sock)/db", "river"),
        (f"jdbc:oracle:thin:scott/{RANDOM}@h", RANDOM),
        (f"mysql -u root -p{RANDOM} shop", RANDOM),
        (f"/usr/bin/mysqldump -p'{RANDOM}' shop", RANDOM),
        (f"mariadb -h db -p{RANDOM}", RANDOM),
        ("sshpass -p river7 ssh host", "river7"),
        (f"sshpass -p '{RANDOM}' ssh host", RANDOM),
        ("CREATE USER bob IDENTIFIED BY 'river7';", "river7"),
        ("alter user bob identified with sha2 by 'quietriver';", "quietriver"),
        ('passphrase: "correct horse battery staple"', "battery"),
        ("WIFI_PASSWORD='correct horse battery staple'", "battery"),
        (f"| password | {RANDOM} |", RANDOM),
        (f" db_password | {RANDOM}", RANDOM),
        (f"Password for bob: {RANDOM}", RANDOM),
        (f"Password for 'https://bob@git.example.com': {RANDOM}", RANDOM),
        (f"Password for bob is {RANDOM}", RANDOM),
        (f"| password: | {RANDOM} |", RANDOM),
        ("jdbc:oracle:thin:scott/Zx9q/Pw7@//h:1521/x", "Pw7"),
        ("secret: correcthorsebattery  ", "horse"),
        (f"ENV AUTH_TOKEN {RANDOM}", RANDOM),
        ("PASSWORD='Zx9q'\"'\"'Pw7rTb2'", "7rTb"),
        ("PASSWORD='Zx9q'\\''Pw7rTb2'", "7rTb"),
        (f"pass\u200bword: {RANDOM}", RANDOM),
        ("password: Zx9q\u200bPw7r\u2060Tb2", "Tb2"),
        (f'{{"key":"DB_PASSWORD","value":"{RANDOM}"}}', RANDOM),
        (f'{{"Name": "DB_PASSWORD", "Value": "{RANDOM}"}}', RANDOM),
        (f"{{name: DB_PASSWORD, value: {RANDOM}}}", RANDOM),
        (f'<add key="Password" value="{RANDOM}"/>', RANDOM),
        (f"- ParameterKey: DbPassword, ParameterValue: {RANDOM}", RANDOM),
    ],
)
def test_secrets_of_configurations_commands_and_tables_are_masked(prefix: str, text: str, secret: str) -> None:
    clean = mask_secrets(f"first\n{prefix}{text}\nlast")
    assert secret in text.replace("\u200b", "").replace("\u2060", "") and secret not in clean
    assert clean.startswith("first\n") and clean.endswith("\nlast") and mask_secrets(clean) == clean


@pytest.mark.parametrize("prefix", ["", "  ", "a.yml:{}:", "a.yml-{}-  ", "+", "-    ", "{}\t", "{}:"])
@pytest.mark.parametrize(
    "lines",
    [
        ("- name: DB_PASSWORD", f"  value: {RANDOM}"),
        ("- name: DB_PASSWORD", f'  value: "{RANDOM}"'),
        ('"name": "DB_PASSWORD",', f'"value": "{RANDOM}"'),
        ("password: >-", f"  {RANDOM}"),
        ("password: |", f"  {RANDOM}"),
        ("db_password: |-", "  correcthorsebattery"),
    ],
)
def test_a_value_in_the_line_below_its_name_is_masked(prefix: str, lines: tuple[str, str]) -> None:
    text = "".join(f"{prefix.format(n)}{line}\n" for n, line in enumerate(lines, 11))
    clean = mask_secrets(text)
    assert clean.count("\n") == 2 and find_marks(clean) and lines[1].split()[-1].strip('"') not in clean
    assert reveal_marks(mask_lines(text), text) == text


def test_a_split_secret_turns_back_into_what_the_file_holds() -> None:
    file = "x=1 \\\n  API_TOKEN=q8w7e6\\\nr5t4y3u2 \\\n  run\n"
    shown = mask_lines(file)
    assert "r5t4" not in shown and shown.count("\n") == file.count("\n") and reveal_marks(shown, file) == file


def test_a_text_is_not_cut_within_a_split_secret() -> None:
    assert secrets.find_safe_cut("one\ntwo \\\nthree \\\n") == 4
    assert secrets.find_safe_cut("one \\\ntwo \\\n") == len("one \\\ntwo \\\n")


def test_a_text_is_not_cut_between_a_name_and_its_value() -> None:
    for line in ("- name: DB_PASSWORD\n", '"key": "DB_PASSWORD",\r\n', "  password: >-\n"):
        assert secrets.find_safe_cut(f"one\n{line}") == secrets.find_safe_cut(f"one\n{line}  val") == len("one\n")
        assert secrets.find_safe_cut(f"one\n{line}  value: x\n") == len(f"one\n{line}  value: x\n")
    assert secrets.find_safe_cut("one\n- name: LOG_LEVEL\n") == len("one\n- name: LOG_LEVEL\n")


def test_only_variables_with_secret_names_count() -> None:
    env = {"EDITOR": "long-value-1", "API_TOKEN": "long-value-2", "SSH_ASKPASS": "/usr/bin/x-askpass", "A_KEY": "abc"}
    assert secret_names.find_environment_values(env) == ("long-value-2",)


def test_lines_of_a_file_keep_their_places() -> None:
    text = f"first\n{PEM}\nlast\n"
    shown = mask_lines(text)
    assert shown.count("\n") == text.count("\n") and shown.endswith("\nlast\n")
    assert mask_secrets(shown) == shown


def test_a_mark_turns_back_into_what_the_file_holds() -> None:
    file = f"API_KEY=q8w7e6r5t4y3\nDEBUG=1\n{PEM}\n"
    shown = mask_lines(file)
    assert "q8w7" not in shown and reveal_marks(shown, file) == file
    assert reveal_marks(mask_secrets(file), file) == file
    assert reveal_marks(shown, "DEBUG=1\n") == shown
    (mark,) = find_marks(mask_secrets("API_KEY=q8w7e6r5t4y3"))
    assert reveal_marks(mark, f"{file}{mark}") == mark  # a file that has the mark itself keeps it


def test_a_mark_of_two_values_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "make_mark", lambda kind, _value: f"[secret:{kind}:0000]")
    file = "A_KEY=q8w7e6r5t4y3\nB_KEY=z8x7c6v5b4n3\n"
    assert reveal_marks("A_KEY=[secret:key:0000]", file) == "A_KEY=[secret:key:0000]"


def test_values_are_also_judged_by_the_name_above_them() -> None:
    clean = mask_value({"password": "hunter2hunter2", "path": "src/hunter2hunter2.py", "n": [1, None, "x"]})
    assert find_marks(clean) and "hunter2hunter2" not in clean["password"]
    assert clean["path"] == "src/hunter2hunter2.py" and clean["n"] == [1, None, "x"]


def test_a_text_is_cut_behind_a_line_and_before_an_open_key() -> None:
    assert secrets.find_safe_cut("one\ntwo") == 4 and secrets.find_safe_cut("one") == 3
    begun = PEM[:60]
    assert secrets.find_safe_cut(f"one\n{begun}\nmore") == 4
    assert secrets.find_safe_cut(f"one\n{PEM}\nmore") == len(f"one\n{PEM}\n")


_PIECES = st.sampled_from([*(text for text, _ in KINDS.values()), "x", " ", "\n", "=", ": ", '"', "token", "ſK", "İ"])


@given(st.lists(_PIECES, max_size=8).map("".join))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    clean = mask_secrets(text)
    assert mask_secrets(clean) == clean


@given(st.text(alphabet="abK1=:\"' \n-_/.@", max_size=300))
def test_any_text_is_taken(text: str) -> None:
    assert mask_secrets(mask_secrets(text)) == mask_secrets(text)
