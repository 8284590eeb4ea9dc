"""Connection strings: which of them are valid, why the others are refused, and that no text shows a password."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sbredis.exceptions import InvalidConnectionStringError
from sbredis.transport import Endpoint, Target, TlsOptions, parse_target, redacted

LOCAL = Target("standalone", (Endpoint("h", 6379),))
CLUSTER = Target("cluster", (Endpoint("h", 6379),))
SENTINEL = Target("sentinel", (Endpoint("h", 26379),), master_name="m")
SECURE = replace(LOCAL, tls=TlsOptions())
UNIX = Target("unix", (Endpoint("/run/r.sock", 0),), path="/run/r.sock")

GOOD = {
    "redis://h": LOCAL,
    "REDIS://h": LOCAL,
    "redis://h/": LOCAL,
    "redis://h?": LOCAL,
    "redis://h:7000": replace(LOCAL, endpoints=(Endpoint("h", 7000),)),
    "redis://h.example.org.:7000": replace(LOCAL, endpoints=(Endpoint("h.example.org.", 7000),)),
    "redis://my_redis-1": replace(LOCAL, endpoints=(Endpoint("my_redis-1", 6379),)),
    "redis://10.0.0.1": replace(LOCAL, endpoints=(Endpoint("10.0.0.1", 6379),)),
    "redis://[::1]": replace(LOCAL, endpoints=(Endpoint("::1", 6379),)),
    "redis://[fe80::1%25eth0]:7": replace(LOCAL, endpoints=(Endpoint("fe80::1%eth0", 7),)),
    "redis://h/3": replace(LOCAL, database=3),
    "redis://h?db=3": replace(LOCAL, database=3),
    "redis://user@h": replace(LOCAL, username="user"),
    "redis://:pw@h": replace(LOCAL, password="pw"),
    "redis://user:@h": replace(LOCAL, username="user", password=""),
    "redis://u%40x:p%3A%2F%3F%23%40%25:x@h": replace(LOCAL, username="u@x", password="p:/?#@%:x"),
    "redis://h?namespace=a.b-c_1": replace(LOCAL, namespace="a.b-c_1"),
    "redis://h?namespace=" + "n" * 50: replace(LOCAL, namespace="n" * 50),
    "redis://h?durability=replicated&replicas=2": replace(LOCAL, durability="replicated", replicas=2),
    "redis://h?&durability=fsync&": replace(LOCAL, durability="fsync"),
    "redis://h?scripts=all": replace(LOCAL, scripts="all"),
    "redis://h?scripts=auto": LOCAL,
    "redis://h?scripts=needed": replace(LOCAL, scripts="needed"),
    "rediss://h": SECURE,
    "rediss://h?tls_verify=ca": replace(SECURE, tls=TlsOptions(verify="ca")),
    "rediss://h?tls_verify=none": replace(SECURE, tls=TlsOptions(verify="none")),
    "rediss://h?tls_ca=%2Fa%20b&tls_cert=c&tls_key=k": replace(SECURE, tls=TlsOptions("full", "/a b", "c", "k")),
    "redis+cluster://h": CLUSTER,
    "redis+cluster://h/0": CLUSTER,
    "redis+cluster://a:1,b,a:1,[::1]:2": replace(
        CLUSTER, endpoints=(Endpoint("a", 1), Endpoint("b", 6379), Endpoint("::1", 2))
    ),
    "rediss+cluster://h": replace(CLUSTER, tls=TlsOptions()),
    "redis+sentinel://h/m": SENTINEL,
    "redis+sentinel://h/m/2": replace(SENTINEL, database=2),
    "redis+sentinel://h/my%20m?db=2": replace(SENTINEL, master_name="my m", database=2),
    "redis+sentinel://h,g:1/m?sentinel_username=u&sentinel_password=p%40w": replace(
        SENTINEL, endpoints=(Endpoint("h", 26379), Endpoint("g", 1)), sentinel_username="u", sentinel_password="p@w"
    ),
    "rediss+sentinel://h/m": replace(SENTINEL, tls=TlsOptions()),
    "unix:///run/r.sock": UNIX,
    "unix://u:p@/run/r.sock?db=1": replace(UNIX, username="u", password="p", database=1),
    "unix:///with%20blank@at": replace(UNIX, endpoints=(Endpoint("/with blank@at", 0),), path="/with blank@at"),
    "embedded:///data": Target("embedded", path="/data"),
    "embedded://data/here": Target("embedded", path="data/here"),
    "embedded:///data?fsync=always": Target("embedded", path="/data", embedded_fsync="always"),
    "embedded:///data?durability=fsync": Target("embedded", path="/data", embedded_fsync="always", durability="fsync"),
    "memory://a.b-1": Target("memory", path="a.b-1"),
    "memory://a?durability=master&namespace=x": Target("memory", path="a", namespace="x"),
}

BAD = [
    ("", "scheme"),
    ("h:6379", "scheme"),
    ("http://h", "scheme"),
    ("user:pw@redis://h", "scheme"),
    ("redis:// h", "characters"),
    ("redis://h\n", "characters"),
    ("redis://h#x", "'#'"),
    ("redis://h&namespace=n", "'&' or '='"),
    ("redis+sentinel://h/m&sentinel_password=p", "'&' or '='"),
    ("redis://", "host"),
    ("redis://u:p@", "host"),
    ("redis://:1", "host"),
    ("redis+cluster://a,,b", "host"),
    ("redis+cluster://a,", "host"),
    ("redis://a,b", "host"),
    ("redis://::1", "host"),
    ("redis://[::1", "host"),
    ("redis://[::1]x", "host"),
    ("redis://[::g]", "host"),
    ("redis://[127.0.0.1]", "host"),
    ("redis://[]", "host"),
    ("redis://a..b", "host"),
    ("redis://-a", "host"),
    ("redis://" + "a" * 64, "host"),
    ("redis://" + ".".join(["a" * 60] * 5), "host"),
    ("redis://a%20b", "host"),
    ("redis://h:", "port"),
    ("redis://h:0", "port"),
    ("redis://h:65536", "port"),
    ("redis://h:x", "port"),
    ("redis://h:²", "port"),
    ("redis://h:" + "1" * 5000, "port"),
    ("redis://[::1]:x", "port"),
    ("redis://a@b:c@h", "credentials"),
    ("redis://u:p/w@h", "credentials"),
    ("redis://u:p?w@h", "credentials"),
    ("redis://u:p?namespace=w@h", "credentials"),
    ("redis://u:%ff@h", "password"),
    ("redis://%ff@h", "user name"),
    ("redis://h/x", "database"),
    ("redis://h/-1", "database"),
    ("redis://h/100001", "database"),
    ("redis://h/" + "1" * 5000, "database"),
    ("redis://h/1/2", "path"),
    ("redis://h/1?db=1", "db"),
    ("redis://h?db=x", "db"),
    ("redis+cluster://h/1", "database"),
    ("redis+cluster://h?db=1", "db"),
    ("embedded:///f?replicas=1", "replicas"),
    ("redis+sentinel://h", "master name"),
    ("redis+sentinel://h/", "master name"),
    ("redis+sentinel://h/%ff", "master name"),
    ("redis+sentinel://h/m/1/2", "path"),
    ("redis+sentinel://h/m?sentinel_password=p@w", "credentials"),
    ("redis://h?sentinel_password=x", "sentinel_password"),
    ("redis://h?nonsense=1", "option"),
    ("redis://h?namespace", "namespace"),
    ("redis://h?namespace=", "namespace"),
    ("redis://h?namespace=a&namespace=b", "namespace"),
    ("redis://h?namespace=-a", "namespace"),
    ("redis://h?namespace=a%2Fb", "namespace"),
    ("redis://h?namespace=" + "n" * 51, "namespace"),
    ("redis://h?durability=all", "durability"),
    ("redis://h?scripts=some", "scripts"),
    ("redis://h?replicas=0", "replicas"),
    ("redis://h?fsync=always", "fsync"),
    ("redis://h?tls_ca=x", "tls_ca"),
    ("rediss://h?tls_verify=perhaps", "tls_verify"),
    ("rediss://h?tls_key=x", "tls_key"),
    ("unix://", "path"),
    ("unix:///", "path"),
    ("unix://relative/path", "path"),
    ("unix:///a%00b", "path"),
    ("unix://u:p?w@/path", "credentials"),
    ("unix:///path?tls_ca=x", "tls_ca"),
    ("embedded://", "folder"),
    ("embedded:///", "folder"),
    ("embedded:///a%00", "folder"),
    ("embedded:///data?fsync=no", "fsync"),
    ("embedded:///data?db=1", "db"),
    ("memory://", "name"),
    ("memory://a/b", "name"),
    ("memory://" + "a" * 65, "name"),
    ("memory://a?durability=replicated", "durability"),
]


@pytest.mark.parametrize(("text", "target"), GOOD.items())
def test_a_valid_connection_string_is_parsed(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(("text", "part"), BAD)
def test_the_error_names_the_part_that_is_wrong(text: str, part: str) -> None:
    with pytest.raises(InvalidConnectionStringError) as caught:
        parse_target(text)
    said = re.sub(r"^Connection string( '[^']*['…])?: ", "", caught.value.message)
    assert said.startswith(f"{part}: "), caught.value.message


def test_a_connection_string_that_is_not_text_is_refused_by_its_type() -> None:
    with pytest.raises(InvalidConnectionStringError, match="not bytes"):
        parse_target(b"redis://h")  # type: ignore[arg-type]


def test_an_invalid_connection_string_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no-such"):
        parse_target("no-such://h")


AZURE = "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0a2V5;EntityPath=q"


@pytest.mark.parametrize("text", [AZURE, AZURE.lower(), "  " + AZURE, AZURE.replace("Endpoint=", "Endpoint =")])
def test_a_string_of_azure_is_recognised_and_its_key_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidConnectionStringError, match=r"Azure Service Bus.*redis://") as caught:
        parse_target(text)
    assert "c2vjcmv0a2v5" not in str(caught.value).lower()
    assert "c2vjcmv0a2v5" not in redacted(text).lower()


FRAMES = (
    "redis://user:{}@host:7000/1?namespace=n",
    "redis://:{}@host:x",
    "redis://:{}@host?nonsense=1",
    "redis://:{}@-",
    "rediss+cluster://user:{}@a:1,b:2?tls_verify=none",
    "redis+sentinel://user:{}@a:1/m",
    "redis+sentinel://h/m?sentinel_password={}",
    "unix://user:{}@/run/redis.sock",
    "{}@redis://host",
    "redis+sentinel://h/m&sentinel_password={}",
    "redis://h/0&password={}",
    "redis+cluster://h,g&password={}",
    "memory://user:{}@h",
    "memory://h&password={}",
)


def texts_about(text: str) -> list[str]:
    """Return every text about a connection string that a user or a log may see."""
    try:
        target = parse_target(text)
    except InvalidConnectionStringError as error:
        return [redacted(text), str(error), repr(error), *map(str, error.args)]
    return [redacted(text), str(target), repr(target)]


VOCABULARY = "".join(line for text in [*FRAMES, *GOOD, *(bad for bad, _ in BAD)] for line in [text, *texts_about(text)])
"""Words that these texts always contain."""


@example(password="\n000", frame="redis+sentinel://h/m&sentinel_password={}", is_encoded=False)
@example(password="@000", frame="redis+sentinel://h/m?sentinel_password={}", is_encoded=False)
@given(password=st.text(min_size=4, max_size=30), frame=st.sampled_from(FRAMES), is_encoded=st.booleans())
def test_a_password_is_never_shown(password: str, frame: str, is_encoded: bool) -> None:
    """No error, parsed target or log shows the password, whether the string is valid or invalid."""
    forms = {password, quote(password, safe=""), repr(password)[1:-1]}
    assume(not any(form in VOCABULARY for form in forms))
    said = texts_about(frame.format(quote(password, safe="") if is_encoded else password))
    assert [line for line in said for form in forms if form in line] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://u:p@h:1/2?namespace=n", "redis://***@h:1/2?namespace=n"),
        ("redis://u:p?a/b#c@d@h", "redis://***@h"),
        ("redis://user:secret", "redis://user:***"),
        ("redis://a:1,b:secret/x", "redis://a:1,b:***/x"),
        ("redis://[::1]:7", "redis://[::1]:7"),
        ("redis+sentinel://h/m?sentinel_password=p&db=1", "redis+sentinel://h/m?sentinel_password=***&db=1"),
        ("redis+sentinel://h/m&sentinel_password=p", "redis+sentinel://h/m***"),
        ("redis://h:1,g=p", "redis://h:1,g***"),
        ("memory://u:p@h", "memory://***@h"),
        ("embedded:///a&b=c?namespace=n", "embedded:///a&b=c?namespace=n"),
        ("redis://h?password=p&auth=q&r", "redis://h?***&***&***"),
        ("user:secret@redis://h", "***"),
        ("secret", "***"),
        ("SharedAccessKey=secret", "***"),
        ("Endpoint=sb://h/;SharedAccessKey=a=b;EntityPath=q", "Endpoint=sb://h/;SharedAccessKey=***;EntityPath=q"),
        ("embedded:///data", "embedded:///data"),
    ],
)
def test_texts_for_the_log_hide_possible_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (Endpoint("h", 1), "h:1"),
        (Endpoint("::1", 1), "[::1]:1"),
        (Endpoint("/run/r.sock", 0), "unix:/run/r.sock"),
        (Endpoint("memory://x", 0), "memory://x"),
    ],
)
def test_an_endpoint_is_shown_in_the_usual_notation(endpoint: Endpoint, text: str) -> None:
    assert str(endpoint) == text


def test_a_target_shows_its_address() -> None:
    assert str(parse_target("redis+cluster://u:p@a:1,[::1]:2")) == "cluster a:1,[::1]:2"
    assert str(parse_target("memory://x")) == "memory x"
