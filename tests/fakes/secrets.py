"""Secrets of many kinds, none of them real: each as it stands in a text, and what of it must not be seen."""

from __future__ import annotations

A = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzAbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
HEX = "3f2a9c81d47be6509a1c5e7f80b2d4c6"
BECH = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
DIGITS = "123456789012"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\nVJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictG"
PEM = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----"
PGP = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{BODY}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
WORDS = "legal winner thank year wave sausage worth useful legal winner thank yellow"

# by kind: the text, and the secret in it
KINDS: dict[str, tuple[str, str]] = {
    "github": (f"remote: https://x ghp_{A[:36]} done", f"ghp_{A[:36]}"),
    "github fine-grained": (f"github_pat_{A[:22]}_{A[:30]}", A[:22]),
    "github, glued": (f"tokenghp_{A[:36]}", f"ghp_{A[:36]}"),
    "gitlab": (f"use glpat-{A[:20]} here", f"glpat-{A[:20]}"),
    "slack token": (f"xoxb-{DIGITS}-{DIGITS}-{A[:24]}", A[:24]),
    "slack hook": (f"https://hooks.slack.com/services/T0AB12CD3/B0EF45GH6/{A[:24]}", A[:24]),
    "openai": (f"the key is sk-proj-{A[:48]}", A[:40]),
    "anthropic": (f"sk-ant-api03-{A[:60]}", A[:40]),
    "stripe": (f"charge with sk_live_{A[:24]}", A[:24]),
    "aws id": ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "aws secret": (f"aws_secret_access_key = {A[:20]}/{A[20:39]}", A[:20]),
    "google": (f"AIza{A[:35]}", A[:35]),
    "json web token": (f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{A[:43]}", "eyJzdWIiOiIxMjM0NTY3ODkwIn0"),
    "huggingface": ("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH", "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"),
    "npm": (f"//registry.npmjs.org/:_authToken=npm_{A[:36]}", A[:36]),
    "pypi": (f"pypi-AgEIcHlwaS5vcmc{A[:60]}", A[:60]),
    "private key": (PEM, BODY),
    "private key, escaped": (PEM.replace("\n", "\\n"), BODY.split("\n")[0]),
    "pgp": (PGP, BODY),
    "bearer": (f"Authorization: Bearer {A[:30]}", A[:30]),
    "basic": ("Authorization: Basic YWRtaW46aHVudGVyMmh1bnRlcg==", "YWRtaW46aHVudGVyMmh1bnRlcg"),
    "cookie": (f"Cookie: sessionid={A[:26]}; theme=dark", A[:26]),
    "url password": ("postgres://ann:s3cr3t-Pa55@db.internal/x", "s3cr3t-Pa55"),
    "DB_PASS": ("DB_PASS=hunter2hunter2", "hunter2hunter2"),
    "TOKEN": (f"export TOKEN={A[:12]}", A[:12]),
    "SECRET": ("SECRET=9f8e7d6c5b4a", "9f8e7d6c5b4a"),
    "client_secret": (f'"client_secret": "{A[:16]}"', A[:16]),
    "password without a digit": ('password = "CorrectHorseBattery"', "CorrectHorseBattery"),
    "option": ("mysql --password hunter2hunter2 -u root", "hunter2hunter2"),
    "sendgrid": (f"SG.{A[:22]}.{A[:43]}", A[:22]),
    "twilio": (f"SK{HEX}", HEX),
    "azure": (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={A[:62]}+/aB3dE5fG7hJ9kL1mN2pQ==", A[:62]),
    "age": (f"AGE-SECRET-KEY-1{BECH}{BECH[:26]}", BECH),
    "telegram": ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"),
    "doppler": (f"dp.pt.{A[:43]}", A[:43]),
    "mnemonic": (f'mnemonic: "{WORDS}"', WORDS),
    "vault": (f"hvs.{A[:30]}", A[:30]),
    "digitalocean": (f"dop_v1_{HEX}{HEX}", HEX),
    "shopify": (f"shpat_{HEX}", HEX),
    "tailscale": (f"tskey-auth-{A[:30]}", A[:30]),
    "databricks": (f"dapi{HEX}", HEX),
    "huggingface, short": (f"hf_{A[:20]}", A[:20]),
    "django": ("SECRET_KEY = 'django-insecure-9(a&v%^bz3k=_x+1#qm5)w@7t!'", "v%^bz3k=_x+1#qm5)w@7t!"),
    "value with a bracket": ("password: 'p@ss(w0rd!2024'", "p@ss(w0rd!2024"),
    "value with a comma": ('"db_password": "rT5,gB2;xQ9[w"', "rT5,gB2;xQ9[w"),
    "value cut at a bracket": ('secret = "hunter2hunter2(xyz9"', "hunter2hunter2(xyz9"),
    "curl": ("curl -sS -u ann:h7Gf2 https://api.example.com/", "h7Gf2"),
    "curl, long option": ('curl https://x.example --user "ann:h7Gf2!kQ" -o out', "h7Gf2!kQ"),
    "curl, glued": ("curl -uann:h7Gf2kQ https://x.example", "h7Gf2kQ"),
    "docker": ('{"auths": {"r.example": {"auth": "YW5uOmh1bnRlcjJodW50ZXI="}}}', "YW5uOmh1bnRlcjJodW50ZXI="),
    "npm, basic": ("//registry.example/:_auth=YW5uOmh1bnRlcjJodW50ZXI=", "YW5uOmh1bnRlcjJodW50ZXI="),
    "kubernetes": (f"client-key-data: LS0tLS1CRUdJTiBS{A}", A),
    "htpasswd": (f"ann:$apr1$x7zq1abc${A[:22]}", A[:22]),
    "htpasswd, bcrypt": (f"ann:$2y$10${A[:53]}", A[:53]),
    "htpasswd, sha": (f"ann:{{SHA}}{A[:27]}=", A[:27]),
    "shadow": (f"ann:$6$rounds=5000$sAlt1234${(A + A)[:86]}:19700:0:99999:7:::", A),
    "shadow, yescrypt": (f"ann:$y$j9T$F5Jx5fExrKuPp53xLKQ..1${A[:43]}:19700::::::", A[:43]),
    "argon2": (f"$argon2id$v=19$m=65536,t=3,p=4${A[:22]}${A[:43]}", A[:43]),
    "django hash": (f"pbkdf2_sha256$600000$sAlt12${A[:43]}=", A[:43]),
    "sentry": (f"https://{HEX}@o12345.ingest.sentry.io/4500123", HEX),
    "sentry, own host": (f"SENTRY_DSN=https://{HEX}@errors.example.com:9000/7", HEX),
}  # fmt: skip

# Lines of code, configuration and prose that name a secret and hold none.
ORDINARY = r"""
password: str
password: str | None = None
password: Optional[str] = None
password: String,
password: bytes = b""
password?: string;
readonly password: string;
private val password: CharSequence
pub password: SecretString,
let password: &str = args.next();
def login(self, user: str, password: str) -> Session:
def set_password(self, new_password: Password | None) -> None:
fn check(token: &Token, secret: &Secret<String>) -> bool {
token = get_token()
token = get_token(user.id)[0]
token = await fetch_token(client)
token=self._lexer.next_token(skip=True)
token=tokens[i+1](ctx)
key=lambda item: item.sort_key(2)
key=itemgetter(1)
key = hash1(a)[2]
key=sha256(data).hexdigest()
key = b64decode(value)[3:]
SECRET = hashlib.sha256(seed).digest()
SECRET_KEY = os.environ.get("SECRET_KEY", "")
SECRET_KEY = config("SECRET_KEY")
SECRET_KEY=$(openssl rand -hex 32)
PASSWORD=$(cat /run/secrets/db1)
PASSWORD="$(pass show db1)"
PASSWORD="${DB_PASSWORD:-}"
PASSWORD=${1:?usage}
PASSWORD=get_password(user1)
TOKEN=md5(concat(a1,b2))
password=crypt(p1, gen_salt('bf'))
password=PASSWORD('x1')
password = make_password(form.cleaned_data["password1"])
password = getpass(f"Password for {user}: ")
password = "%(password)s1"
password = "%(user)s:%(db1)s"
password = "{user}:{1}"
password = "{0}{1}{2}"
password = "<your-password-1>"
password = r"[a-zA-Z0-9]{8,}"
password = "^(abc|def)[0-9]+$"
password_regex = "^(?=.*[A-Z]).{8,}$"
const secret = process.env.SECRET;
const token = jwt.sign({id: 1}, secret);
const token = (await getToken(1)).accessToken;
const apiKey = useMemo(() => getKey(id1), [id1]);
apiKey: import.meta.env.VITE_API_KEY,
secret: !Sub '${AppName}-secret-1'
secret: "!GetAtt Secret1.Arn"
secretName: web-tls-1
secret: <%= ENV["SECRET_1"] %>
password: {{ vault_db_password }}
password: "{{ lookup('env', 'DB_PASS1') }}"
password: ${{ secrets.NPM_TOKEN }}
token: ${{ steps.app.outputs.token }}
password: required
password: optional
password: string
password: null
password: ""
password: ********
password: [REDACTED]
password: <hidden>
passwords: list[str] = field(default_factory=list)
"password": {"type": "string", "minLength": 8}
"password": "string",
"password": "your-password-here",
"token": {"$ref": "#/definitions/Token1"},
"secret": "#/components/schemas/Secret1"
"key": "ctrl+shift+p"
{ "key": "cmd+k cmd+1", "command": "a.b" }
keys: ["a1", "b2", "c3"],
primary_key=True, unique=True
foreign_key: users.id1
api_key_header = APIKeyHeader(name="X-API-Key")
The password: what the user types, at least 8 characters.
See docs/auth.md: the token is read from the environment.
Step 3: password: the one you chose above
Note: a token: see RFC 6750 section 2.1.
Pass the key (see 4.2) to the function.
2. Secret: any text of 32 bytes.
Usage: login [--password PASSWORD] [--token TOKEN]
  --password TEXT  The password [required]
  --token-file FILE  read the token from FILE(1)
:param password: plaintext, hashed before it is stored
@param token the token (1..n)
 * password: the password of the user
// password: see config(5)
# TOKEN: set in .env(5)
assert token == expected_token(3), "token1"
if password == confirm(password, retries=3): pass
while token := next_token(stream1): yield token
return password_hash(password=password, rounds=12)
parser.add_argument("--api-key", default=env("API_KEY1"))
hf_hub_download(repo_id="a/b1")
hf_model2 = load(hf_Qwen2Model)
from hf_transfer2 import hf_Llama3Config
tokenizer = AutoTokenizer.from_pretrained("t5-small")
self.token_embedding = nn.Embedding(50257, 768)
for key, value in sorted(d.items(), key=lambda kv: kv[1]): ...
SELECT key, token FROM t WHERE key = f(1) AND token = g(2)
ALTER ROLE app PASSWORD NULL VALID UNTIL 'infinity'
case TokenKind.key: return parseKey(2);
match token { Token::Key(k1) => k1, _ => 0 }
""".strip().splitlines()

# Lines near the rules for pairs, tables, blocks, prompts, commands and SQL that hold no secret.
TEMPTING = r"""
- name: LOG_LEVEL
- { name: GREETING, value: Zx9qPw7rTb2 }
- { name: SECRET_NAME, value: web-tls-secret-1 }
- { name: PASSWORD_FILE, value: /run/secrets/db1 }
- { name: DB_PASSWORD, valueFrom: { secretKeyRef: { name: db, key: password } } }
{"key": "content-length", "value": "Zx9qPw7rTb2"}
{"name": "token", "value": "bearer"}
{"name": "password", "value": "${DB_PASSWORD}"}
{ name: 'password', value: hashedPassword2 }
{ name: "token", value: accessToken }
for name, value in secrets.items(): print(name, value=password_of(name))
Field(name="password", value=form.initial1)
<add key="PageSize12" value="Zx9qPw7rTb2"/>
<input name="password" value="{{ form.password1 }}">
docker run -p 8080:80 -p 127.0.0.1:3306:3306 mysql
docker run --name mysql -p3306:3306 -d mysql
ssh -p 2222 host && sshpass -e ssh host
mysql -p
mysql -u root -p shop
mysql -u root -p"$MYSQL_PASSWORD" shop
mysql -u root -p${PASS} -h db1
mysqldump -pPASSWORD shop
mkdir -pv build/mysql && cp -pr mysql/conf1 build
pip install mysql-python1 -prefer-binary
sshpass -p "$PASS" ssh host
sshpass -p <password> ssh host
Use IDENTIFIED BY to set the password of a user.
CREATE USER 'bob' IDENTIFIED BY 'password';
CREATE USER 'bob' IDENTIFIED BY '<password>';
ALTER USER bob IDENTIFIED BY '${DB_PASSWORD}';
each row is identified by 'customer_id1' in the index
resources are identified by "namespace1"
| password | required | the password of the user |
| password | string   | at least 8 characters    |
| token    | header1x | see below                |
| name     | password | required                 |
 password | character varying(255) |
cat password | sha256sum | cut -c1-8
get_token | python3 -m json.tool
Password for bob:
Password for 'https://bob@git.example.com':
Password for user root: required
password for all users: minimum8
AUTH_TOKEN must be set before you start
#define AUTH_TOKEN 0x1f2e3d4c5b6a
#define MAX_TOKEN sizeof(buffer1)
export AUTH_TOKEN
passphrase: "enter the passphrase of your key"
password: "must be at least eight characters"
"password": "Please enter your password again"
password_hint: "correct horse battery staple"
user:pass@tcp(localhost:3306)/db
root:root@tcp(127.0.0.1:3306)/test
fmt.Sprintf("%s:%s@tcp(%s:%d)/%s", user, pw, host, port, name)
${DB_USER}:${DB_PASS}@tcp(${DB_HOST})/app
jdbc:oracle:thin:@//host1:1521/service1
jdbc:oracle:thin:${user}/${password}@host1
secret: letsencrypt
secret: db-credentials-1
password: str1
password: base64decode(x1
password = b64encode(a1b
""".strip().splitlines()
