"""Over HTTP: what is answered, and what every wrong, huge, slow or truncated request gets."""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from smoothcert.service import server as server_module
from smoothcert.service.gate import HEADERS, network
from smoothcert.service.limits import EngineLimits, Limits
from smoothcert.service.secrets import Keys, new_key
from tests.service.made import Edge, Live, live
from tests.waiting import join, until

pytestmark = pytest.mark.system

FAR = [-1.0, 0.0]


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    with live(limits=Limits(body=10_000, inputs=4, body_seconds=0.5, requests_per_minute=10_000)) as server:
        yield server


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_certify_and_predict_answer_in_order(served: Live) -> None:
    status, _, found = served.post("/v1/certify", {"inputs": [FAR, [3.0, 0.0]]})
    assert status == 200
    assert [one["predicted"] for one in found["results"]] == [0, 1]
    assert all(one["radius"] > 0.5 and one["votes"] == 2048 for one in found["results"])
    assert found["alpha"] == 0.001
    assert found["plan"] == served.service.engine.plan_hash
    status, _, found = served.post("/v1/predict", {"inputs": [[-2.0, 0.0]], "votes": 1000})
    assert status == 200
    assert found["results"][0]["predicted"] == 0
    assert found["results"][0]["ended"] == "rule"
    status, _, found = served.post("/v1/certify", {"inputs": [[0.5, 0.0]], "votes": 64})
    (tie,) = found["results"]
    assert (tie["predicted"], tie["abstained"], tie["radius"]) == (-1, True, 0.0)


def test_a_radius_asked_for_stops_the_voting(served: Live) -> None:
    _, _, found = served.post("/v1/certify?radius=0.25", {"inputs": [[-3.0, 0.0]]})
    (one,) = found["results"]
    assert one["radius"] >= 0.25
    assert one["votes"] < 2048
    assert one["ended"] == "rule"
    assert "0.25" in one["reason"]


def test_npy_files_are_inputs_too(served: Live) -> None:
    for array, count in ((np.array(FAR, ">f4"), 1), (np.array([FAR, FAR]), 2), (np.array([[1, 2]], "u1"), 1)):
        status, _, found = served.post("/v1/certify", npy(array), content_type="application/x-npy")
        assert status == 200, found
        assert len(found["results"]) == count


def test_a_stream_is_events_that_end_with_the_answer(served: Live) -> None:
    body = json.dumps({"inputs": [[-1.0, 5.0]], "copies": 2}).encode()
    status, headers, found = served.ask("POST", "/v1/certify/stream", body, content_type="application/json")
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [part.split("\n") for part in found.decode().strip().split("\n\n")]
    named = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
    assert named[0][0] == "copies"
    assert np.shape(named[0][1]["inputs"]) == (2, 2)
    assert {name for name, _ in named[1:-1]} == {"votes"}
    states = [data for name, data in named if name == "votes"]
    assert [state["votes"] for state in states] == sorted({state["votes"] for state in states})
    assert named[-1][0] == "answer"
    assert named[-1][1]["votes"] == 2048
    _, _, again = served.post("/v1/certify", {"inputs": [[-1.0, 5.0]]})
    assert again["results"][0]["radius"] == named[-1][1]["radius"]


def test_plan_health_and_metrics(served: Live) -> None:
    status, _, found = served.ask("GET", "/v1/plan")
    plan = json.loads(found)
    assert status == 200
    assert "0.999" in plan["promise"]
    assert plan["plan"]["bound"] == "mixture-two-class"
    assert "seed" not in plan["plan"]
    assert str(served.service.engine.secret.seed) not in found.decode()
    assert plan["sha256"] == served.service.engine.plan_hash
    assert served.ask("GET", "/healthz")[2] == b"ok\n"
    assert served.ask("GET", "/readyz")[2] == b"ready\n"
    text = served.ask("GET", "/metrics")[2].decode()
    assert 'smoothcert_requests_total{path="/v1/plan",status="200"}' in text
    assert "smoothcert_votes_total" in text


def sized(shape: str) -> bytes:
    """A .npy file of 16 bytes whose header claims a shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16)


WRONG = {
    "no JSON": (b"{", "application/json", 422),
    "no object": (b"[1, 2]", "application/json", 422),
    "no inputs": (b"{}", "application/json", 422),
    "a name given twice": (b'{"inputs": [[0, 0]], "inputs": [[3, 0]]}', "application/json", 422),
    "an option of another path": (b'{"inputs": [[0, 0]], "copies": 2}', "application/json", 422),
    "more lists than inputs have": (b'{"inputs": [' + b"[]," * 99 + b"[]]}", "application/json", 422),
    "more numbers than inputs have": (b'{"inputs": [[' + b"0," * 99 + b"0]]}", "application/json", 413),
    "objects in objects": (b'{"inputs": [[{}, {}]]}', "application/json", 422),
    "an unknown field": (b'{"inputs": [[0, 0]], "model": "os:system"}', "application/json", 422),
    "an empty list": (b'{"inputs": []}', "application/json", 422),
    "another shape": (b'{"inputs": [[1, 2, 3]]}', "application/json", 422),
    "ragged lists": (b'{"inputs": [[1, [2]]]}', "application/json", 422),
    "texts": (b'{"inputs": [["1", "2"]]}', "application/json", 422),
    "truth values": (b'{"inputs": [[true, false]]}', "application/json", 422),
    "NaN": (b'{"inputs": [[NaN, 0]]}', "application/json", 422),
    "1e999": (b'{"inputs": [[1e999, 0]]}', "application/json", 422),
    "numbers too large for the noise": (b'{"inputs": [[1e30, 0]]}', "application/json", 422),
    "numbers whose squares overflow": (b'{"inputs": [[-2.6e206, 0]]}', "application/json", 422),
    "an endless integer": (b'{"inputs": [[1' + b"0" * 5000 + b", 0]]}", "application/json", 422),
    "nesting without end": (b'{"inputs": ' + b"[" * 4900, "application/json", 422),
    "no UTF-8": (b'{"inputs": "\xff\xfe"}', "application/json", 422),
    "votes beyond the plan's": (b'{"inputs": [[0, 0]], "votes": 100000}', "application/json", 422),
    "votes as a text": (b'{"inputs": [[0, 0]], "votes": "9"}', "application/json", 422),
    "a deadline of nothing": (b'{"inputs": [[0, 0]], "deadline": 0}', "application/json", 422),
    "a deadline next year": (b'{"inputs": [[0, 0]], "deadline": 9999}', "application/json", 422),
    "too many inputs": (b'{"inputs": [[0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]}', "application/json", 413),
    "a body too large": (b'{"inputs": [' + b" " * 10_000 + b"]}", "application/json", 413),
    "no kind": (b'{"inputs": [[0, 0]]}', "", 415),
    "a pickle": (b"\x80\x04.", "application/python-pickle", 415),
    "a form": (b"a=b", "multipart/form-data", 415),
    "a text that a page may send unasked": (b'{"inputs": [[0, 0]]}', "text/plain", 415),
    "a .npy of objects": (npy(np.array([{}, []], dtype=object)), "application/x-npy", 422),
    "a .npy of texts": (npy(np.array(["a", "b"])), "application/x-npy", 422),
    "a .npy with truth values for sizes": (sized("(True, 2)"), "application/x-npy", 422),
    "a .npy of endless sizes": (sized(f"(0, {10**30})"), "application/x-npy", 422),
    "a .npy cut off": (npy(np.zeros(2))[:-1], "application/x-npy", 422),
    "a picture for a model of numbers": (b"\x89PNG", "image/png", 422),
}  # fmt: skip


def test_a_wrong_body_is_refused_with_its_reason(served: Live) -> None:
    before = served.service.engine.load().votes_cast
    for what, (body, kind, expected) in WRONG.items():
        status, _, found = served.ask("POST", "/v1/certify", body, content_type=kind)
        assert status == expected, (what, found)
        assert len(json.loads(found)["error"]) > 10, what
        assert "Traceback" not in found.decode(), what
        assert served.service.engine.load().votes_cast == before, f"{what} cost votes"


def test_wrong_options_are_refused_by_name(served: Live) -> None:
    for query in (
        "votes=0",
        "votes=x",
        "radius=nan",
        "radius=-1",
        "deadline=1e99",
        "votes=5&votes=6",
        "vote=5",
        "copies=2",
    ):
        status, _, found = served.post(f"/v1/certify?{query}", {"inputs": [FAR]})
        assert status == 422, query
        assert query.partition("=")[0] in found["error"], query
    status, _, found = served.post("/v1/certify?votes=5", {"inputs": [FAR], "votes": 5})
    assert status == 422
    assert "votes" in found["error"]


def test_other_paths_and_methods_are_refused(served: Live) -> None:
    assert served.ask("GET", "/v1/../etc/passwd")[0] == 404
    assert served.ask("GET", "/page/../../../etc/passwd")[0] == 404
    assert served.ask("GET", "/docs")[0] == 404
    assert served.ask("POST", "/v1/certify/", b"", host="evil.example")[0] == 404, "and no redirection"
    assert served.ask("DELETE", "/v1/plan")[0] == 405
    assert served.ask("GET", "/v1/certify")[0] == 405
    assert served.post("/v1/certify/stream", {"inputs": [FAR, FAR]})[0] == 422


def test_every_answer_has_safe_headers(served: Live) -> None:
    for path in ("/", "/page.js", "/page.css", "/healthz", "/v1/plan", "/nothing", "/v1/certify"):
        _, headers, _ = served.ask("GET", path)
        for name, value in HEADERS.items():
            assert headers[name.decode()] == value.decode(), path
        assert "server" not in headers, path


def test_a_fault_of_ours_has_safe_headers_and_says_nothing(
    served: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan() -> None:
        raise RuntimeError("/var/somebody/secret")

    monkeypatch.setattr(served.service, "plan", plan)
    status, headers, found = served.ask("GET", "/v1/plan")
    assert (status, set(json.loads(found))) == (500, {"error"})
    assert b"somebody" not in found
    for name, value in HEADERS.items():
        assert headers[name.decode()] == value.decode()
    assert 'path="/v1/plan",status="500"' in served.ask("GET", "/metrics")[2].decode()


def raw(server: Live, content: bytes, *, leave: bool = True) -> bytes:
    """What comes back for bytes as they are, until the server closes; a client that leaves sends no more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall(content)
        if leave:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while part := line.recv(65536):
            found += part
        return found


HEAD = b"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_malformed_requests_get_400_or_an_end(served: Live) -> None:
    for content in (
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo colon\r\n\r\n",
        HEAD + b"Content-Length: nine\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        HEAD + b"X: " + b"a" * 70_000,  # without its end
    ):
        found = raw(served, content)
        assert not found or found.startswith(b"HTTP/1.1 400"), found[:100]
    assert served.ask("GET", "/healthz")[0] == 200


def test_a_body_of_two_lengths_gets_400(served: Live) -> None:
    """A proxy that goes by the other one would take the rest for another request."""
    body = b'{"inputs": [[-1.0, 0.0]]}'
    lengths = [b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n"]
    for given, status in ((lengths[1:], 200), (lengths, 400), (lengths[::-1], 400)):
        head = HEAD + b"Connection: close\r\n" + b"".join(given)
        found = raw(served, head + b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), leave=False)
        assert found.startswith(b"HTTP/1.1 %d" % status), (given, found[:100])


def test_a_head_that_is_too_long_gets_431(served: Live) -> None:
    for head in (HEAD + b"X: " + b"a" * 20_000, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost"):
        found = raw(served, head + b"\r\nContent-Length: 0\r\n\r\n")
        assert found.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))  # whole in one piece, or in several
    assert served.ask("GET", "/healthz", X="a" * 17_000)[0] in (400, 431)


LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have one address of the loopback network"
)
HALF = {
    "heads": b"GET /healthz HTTP/1.1\r\nHost: local",
    "bodies": HEAD + b'Content-Length: 100\r\n\r\n{"inp',
}


@LINUX
@pytest.mark.parametrize(("what", "addresses"), [("heads", 1), ("bodies", 1), ("bodies", 5)])
def test_half_sent_requests_keep_nobody_out(what: str, addresses: int) -> None:
    """More of them than there may be connections, held for longer than the test takes; nor do they end others'."""
    with live(limits=Limits(connections=8, body_seconds=60.0)) as server, ExitStack() as held:
        neighbour = held.enter_context(closing(HTTPConnection("127.0.0.1", server.port, timeout=20)))
        for number in range(30):
            source = (f"127.0.0.{2 + number % addresses}", 0)
            line = socket.create_connection(("127.0.0.1", server.port), 20, source)
            held.enter_context(line).sendall(HALF[what])
            neighbour.request("GET", "/healthz")
            answer = neighbour.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")
        assert server.post("/v1/certify", {"inputs": [FAR]})[0] == 200
        assert len(server.server.server_state.connections) <= 10


def test_an_address_has_a_quarter_of_the_requests_under_way() -> None:
    """And callers who come when all places are taken have one."""
    model = Edge()
    with live(model, limits=Limits(connections=8)) as server, ThreadPoolExecutor(9) as pool:
        model.open.clear()

        def ask(number: int) -> int:
            return server.post("/v1/certify", {"inputs": [FAR]}, source=f"127.0.0.{number}")[0]

        held = [pool.submit(ask, 1) for _ in range(2)]
        until(lambda: server.service.engine.load().inputs == 2)
        assert ask(1) == 429
        assert server.ask("GET", "/healthz")[0] == 200
        if sys.platform == "linux":
            held += [pool.submit(ask, 2 + number // 2) for number in range(6)]
            until(lambda: server.service.engine.load().inputs == 8)
            held.append(pool.submit(ask, 9))
            until(lambda: server.service.engine.load().inputs == 9)
            assert ask(9) == 503, "one each, where there are more callers than places"
        model.open.set()
        assert {each.result(60) for each in held} == {200}


def test_a_customers_network_is_one_caller() -> None:
    """Of IPv6 each has 2^64 addresses."""
    assert network("2001:db8:1:2:3::4") == network("2001:db8:1:2::5") != network("2001:db8:1:3::5")
    assert network("::ffff:10.0.0.1") != network("::ffff:10.0.0.2")
    assert [network(address) for address in ("10.0.0.1", "a.socket")] == ["10.0.0.1", "a.socket"]


def test_a_slow_body_gets_408(served: Live) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"inp')
        assert line.recv(65536).startswith(b"HTTP/1.1 408")


def test_a_truncated_body_leaves_nothing_behind(served: Live) -> None:
    raw(served, HEAD + b'Content-Length: 100\r\n\r\n{"inputs"')
    assert served.service.engine.load().inputs == 0
    assert served.ask("GET", "/healthz")[0] == 200


def test_a_chunked_body_is_counted_as_it_comes(served: Live) -> None:
    chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
    found = raw(served, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2)
    assert found.startswith(b"HTTP/1.1 413")


def test_a_connection_that_says_nothing_is_closed(served: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HEADER_SECONDS", 0.2)
    for begun in (b"", b"GET / HT"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
            line.sendall(begun)
            assert line.recv(10) == b""


def test_who_does_not_read_the_answers_is_sent_away(served: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_UNREAD_SECONDS", 0.2)
    with socket.socket() as line:
        line.settimeout(20)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        line.connect(("127.0.0.1", served.port))
        line.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        until(lambda: served.server.server_state.connections)
        until(lambda: not served.server.server_state.connections)
    assert served.ask("GET", "/page.js")[0] == 200


def test_bodies_take_so_much_memory_together_and_no_more() -> None:
    with live(limits=Limits(body=1000, bodies=1000)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
            line.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 990)
            until(lambda: server.service.bodies.amount == 990)
            status, headers, _ = server.post("/v1/certify", {"inputs": [FAR]})
            assert (status, headers["retry-after"]) == (429, "1")
        until(lambda: server.service.bodies.amount == 0)
        assert server.post("/v1/certify", {"inputs": [FAR]})[0] == 200
        assert server.service.bodies.amount == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_engine_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks after it starts another; one that lives on would answer nobody."""
    with live() as server:

        def run(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(server.service.engine._model, "run", run)
        server.service.engine._counted = run  # what is under way fails, too
        status, _, _ = server.post("/v1/certify", {"inputs": [FAR]})
        assert status in (422, 503)
        server._thread.join(30)
        assert not server._thread.is_alive()
        assert server.service.engine.broken


def test_a_deadline_answers_with_what_there_is() -> None:
    model = Edge()
    with live(model, n=2**20) as server:
        server.post("/v1/certify", {"inputs": [FAR], "votes": 512})
        model.open.clear()
        status, _, found = server.post("/v1/certify", {"inputs": [FAR], "deadline": 0.2})
        model.open.set()
        assert status == 200
        (one,) = found["results"]
        assert one["ended"] == "deadline"
        assert one["votes"] >= 512
        assert one["radius"] > 0


def test_a_full_queue_is_429_and_says_when() -> None:
    model = Edge()
    limits = Limits(engine=EngineLimits(queue=2, per_caller=2))
    with live(model, limits=limits) as server:
        model.open.clear()
        threads = [
            threading.Thread(target=server.post, args=("/v1/certify", {"inputs": [[-1.0, place]]}))
            for place in range(2)
        ]
        for thread in threads:
            thread.start()
        until(lambda: server.service.engine.load().inputs == 2)
        status, headers, found = server.post("/v1/certify", {"inputs": [FAR]})
        assert status == 429
        assert int(headers["retry-after"]) >= 1
        assert set(found) == {"error"}
        model.open.set()
        join(*threads)
        assert server.post("/v1/certify", {"inputs": [FAR]})[0] == 200


def test_a_caller_has_so_many_requests_and_votes_a_minute() -> None:
    with live(limits=Limits(requests_per_minute=3)) as server:
        found = [server.post("/v1/predict", {"inputs": [FAR]})[0] for _ in range(4)]
        assert found == [200, 200, 200, 429]
        assert server.ask("GET", "/healthz")[0] == 200
    with live(limits=Limits(votes_per_minute=1000)) as server:
        assert server.post("/v1/certify", {"inputs": [FAR]})[0] == 200
        status, headers, found = server.post("/v1/certify", {"inputs": [[-1.0, 1.0]]})
        assert status == 429
        assert "1000" in found["error"]
        assert 30 < int(headers["retry-after"]) < 120


@pytest.mark.parametrize("path", ["/v1/certify", "/v1/certify/stream"])
def test_a_client_that_leaves_frees_its_votes(path: str) -> None:
    model = Edge()
    with live(model, n=2**22) as server:
        model.open.clear()
        body = json.dumps({"inputs": [FAR]}).encode()
        lines = []
        for _ in range(5):
            line = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            line.sendall(HEAD.replace(b"/v1/certify", path.encode()))
            line.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            lines.append(line)
        until(lambda: server.service.engine.load().inputs == 5)
        for line in lines:
            line.close()
        model.open.set()
        until(lambda: server.service.engine.load().inputs == 0)
        assert server.service.engine.load().votes_cast < 2**20
        until(lambda: not server.service.engine._votings)


def test_keys_are_asked_for(tmp_path) -> None:
    path = tmp_path / "keys"
    key = new_key(path, "alice")
    other = new_key(path, "bob")
    with live(keys=Keys.read(path)) as server:
        assert server.post("/v1/certify", {"inputs": [FAR]})[0] == 401
        assert server.post("/v1/certify", {"inputs": [FAR]}, authorization="Bearer nobody's")[0] == 401
        assert server.post("/v1/certify", {"inputs": [FAR]}, authorization=f"Bearer {key}")[0] == 200
        assert server.post("/v1/certify", {"inputs": [FAR]}, x_api_key=other)[0] == 200
        assert server.ask("GET", "/metrics")[0] == 401
        assert server.ask("GET", "/v1/plan")[0] == 401
        assert server.ask("GET", "/healthz")[0] == 200
        assert server.ask("GET", "/")[0] == 200


def test_names_of_other_hosts_are_refused_where_there_are_no_keys() -> None:
    """A page elsewhere may give its own name this machine's address; the browser then asks by that name."""
    with live(hosts=server_module.LOOPBACK) as server:
        assert server.ask("GET", "/healthz", host="localhost:1234")[0] == 200
        assert server.ask("GET", "/healthz", host="[::1]:1234")[0] == 200
        assert server.ask("GET", "/healthz", host="evil.example")[0] == 421
        assert server.post("/v1/certify", {"inputs": [FAR]}, host="evil.example")[0] == 421


def test_an_input_that_the_model_can_not_vote_on_is_422(served: Live) -> None:
    status, _, found = served.post("/v1/certify", {"inputs": [[0.0, 200.0]]})
    assert status == 422
    assert "NaN" in found["error"]
    body = json.dumps({"inputs": [[0.0, 201.0]]}).encode()
    status, _, found = served.ask("POST", "/v1/certify/stream", body, content_type="application/json")
    assert status == 422
    assert served.ask("GET", "/readyz")[0] == 200


def test_shutdown_answers_what_it_holds_and_refuses_the_rest() -> None:
    model = Edge()
    with live(model, n=2**22) as server:
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(server.post("/v1/certify", {"inputs": [FAR], "deadline": 60}))
        )
        thread.start()
        until(lambda: server.service.engine.load().votes_cast > 1000)
    join(thread)
    ((status, _, found),) = answers
    assert status == 200
    assert found["results"][0]["ended"] == "shutdown"
    assert found["results"][0]["radius"] > 0
