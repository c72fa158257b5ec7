from mirror.errors import UpstreamError
from mirror.retry import retry
from mirror.sync import sync
from mirror.upstream import Upstream


class Server:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked, self.slept, self.lines = 0, [], []

    def fetch(self, path):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def upstream(self, attempts=3):
        return Upstream(self.fetch, attempts=attempts, sleep=self.slept.append, log=lambda line: None)


def test_an_upstream_that_is_down_is_told():
    server = Server((503, None))
    local = {"tea": ("1.0", "x")}
    assert sync(server.upstream(), local, server.lines.append) is None
    assert server.lines == ["upstream failed: /index: status 503"]
    assert local == {"tea": ("1.0", "x")}


def test_attempts_are_counted():
    server = Server(OSError("refused"))
    sync(server.upstream(3), {}, server.lines.append)
    assert server.asked == 3


def test_no_pause_after_the_last():
    server = Server((500, None))
    sync(server.upstream(4), {}, server.lines.append)
    assert server.slept == [0.5, 1.0, 2.0]


def test_the_last_attempt_counts():
    server = Server((500, None), (429, None), (200, {}))
    assert sync(server.upstream(3), {}, server.lines.append) == []


def test_what_will_never_come_is_asked_for_once():
    server = Server((200, {"tea": "1.0"}), (404, None))
    assert sync(server.upstream(), {}, server.lines.append) is None
    assert (server.asked, server.slept) == (2, [])
    assert server.lines == ["upstream failed: /packages/tea: status 404"]


def test_one_attempt():
    server = Server((200, {}))
    assert sync(server.upstream(1), {}, server.lines.append) == []


def test_other_errors_go_through_at_once():
    asked = []

    def broken():
        asked.append(1)
        raise KeyError("x")

    try:
        retry(broken, sleep=asked.append)
    except KeyError:
        assert asked == [1]
    else:
        raise AssertionError


def test_the_error_itself_is_raised():
    error = UpstreamError("gone", transient=True)

    def broken():
        raise error

    try:
        retry(broken, sleep=lambda s: None, log=lambda line: None)
    except UpstreamError as e:
        assert e is error
    else:
        raise AssertionError
