"""Secrets never reach a log, in whatever pieces they are written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.local.process_harness import ProcessHarness, until

from spotwright.local.protocol import Started
from spotwright.local.supervisor.attempt_supervisor import SecretRedactor

KEY = b"-----BEGIN-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC\nab\n-----END-----\n"


def masked(secrets: list[bytes], *parts: bytes) -> bytes:
    masker = SecretRedactor(secrets)
    return b"".join([*map(masker.feed, parts), masker.flush()])


def test_every_occurrence_is_replaced() -> None:
    assert masked([b"hunter2"], b"a hunter2 hunter2hunter2\n") == b"a *** ******\n"


def test_a_secret_split_over_two_writes_is_replaced() -> None:
    assert masked([b"hunter2"], b"a hun", b"ter", b"2 b\n") == b"a *** b\n"


def test_text_that_only_begins_like_a_secret_is_kept() -> None:
    assert masked([b"hunter2"], b"hunt", b"ing\nhunter") == b"hunting\nhunter"


def test_the_longer_of_two_overlapping_secrets_is_replaced_as_a_whole() -> None:
    assert masked([b"abc", b"abcdef"], b"abc", b"def abc d\n") == b"*** *** d\n"


def test_only_a_possible_beginning_of_a_secret_is_held_back() -> None:
    masker = SecretRedactor([b"hunter2"])
    assert masker.feed(b"progress 10% h") == b"progress 10% "
    assert masker.feed(b"a") == b"ha"


def test_the_lines_of_a_multi_line_secret_are_replaced_separately() -> None:
    quoted = KEY.replace(b"\n", b"\\n")
    assert masked([KEY], b"key: " + quoted + b"\nab\n") == b"key: ***\\n***\\n  ***\\nab\\n***\\n\nab\n"


def test_a_newline_after_a_secret_is_kept() -> None:
    assert masked([b"hunter2\n"], b"is hunter2.") == b"is ***."


@pytest.mark.parametrize("secrets", [[], [b""], [b" \n"]])
def test_text_without_a_secret_is_unchanged(secrets: list[bytes]) -> None:
    assert masked(secrets, b"a", b"b\n") == b"ab\n"


WORDS = st.binary(min_size=1, max_size=6).filter(
    lambda word: word.strip() == word and b"*" not in word and len(word.splitlines()) == 1
)


@given(st.lists(WORDS, max_size=4), st.lists(st.sampled_from([b"a", b"ab", b"b", b"\n", b"ba", b"c"]), max_size=30))
def test_the_result_does_not_depend_on_how_the_stream_is_split(secrets: list[bytes], parts: list[bytes]) -> None:
    secrets = [*secrets, b"ab", b"aba", b"bab"]
    assert masked(secrets, *parts) == masked(secrets, b"".join(parts))


@given(st.lists(WORDS, min_size=1, max_size=4), st.binary(max_size=40))
def test_the_output_contains_no_secret(secrets: list[bytes], text: bytes) -> None:
    found = [part for part in re.split(rb"\*+", masked(secrets, secrets[0] + text + secrets[-1])) if part]
    assert not [secret for secret in secrets for part in found if secret in part]


def test_the_log_of_an_attempt_contains_no_secret(harness: ProcessHarness) -> None:
    record = harness.play(
        """
        import subprocess, sys
        def work(token: str):
            print("token", token)
            sys.stderr.write(token[:3]); sys.stderr.flush()
            sys.stdout.write(token[3:] + "!\\n"); sys.stdout.flush()
            subprocess.run(["echo", "child", token])
            sys.exit(token)
        """,
        {"token": "hunter2"},
        secrets=(b"hunter2",),
    )
    assert record.exit_code == 1
    assert harness.log() == "token ***\n***!\nchild ***\n***\n"


def test_a_redacted_log_is_live_and_complete_after_a_kill(harness: ProcessHarness) -> None:
    key = harness.start(
        "import time\ndef work():\n    print('one')\n    print('two')\n    time.sleep(600)\n", secrets=(b"hunter2",)
    )
    harness.wait_for(Started, key)
    until(lambda: harness.log() == "one\ntwo\n", "the log")
    harness.processes.kill(key)
    assert harness.end(key).signal == 9
    assert harness.log() == "one\ntwo\n"


def test_a_large_output_is_redacted(harness: ProcessHarness) -> None:
    harness.play(
        "def work():\n    for n in range(20_000):\n        print('line', n, 'hunter2')\n", secrets=(b"hunter2",)
    )
    lines = harness.log().splitlines()
    assert len(lines) == 20_000
    assert lines[-1] == "line 19999 ***"


def test_a_daemon_that_keeps_the_output_open_does_not_delay_the_end(harness: ProcessHarness) -> None:
    record = harness.play(
        "import subprocess\ndef work():\n    subprocess.Popen(['sleep', '600'], start_new_session=True)\n    print('end')\n",
        secrets=(b"hunter2",),
    )
    assert record.exit_code == 0
    assert harness.log() == "end\n"
