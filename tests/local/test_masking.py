"""Secrets never reach a log, however they are written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.local.lab import Lab, until

from spotwright.local.masking import Masker
from spotwright.local.orders import Started

KEY = b"-----BEGIN-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC\nab\n-----END-----\n"


def masked(secrets: list[bytes], *parts: bytes) -> bytes:
    masker = Masker(secrets)
    return b"".join([*map(masker.feed, parts), masker.flush()])


def test_every_occurrence_is_replaced() -> None:
    assert masked([b"hunter2"], b"a hunter2 hunter2hunter2\n") == b"a *** ******\n"


def test_a_secret_that_is_cut_in_two_is_replaced() -> None:
    assert masked([b"hunter2"], b"a hun", b"ter", b"2 b\n") == b"a *** b\n"


def test_what_only_begins_like_a_secret_is_shown() -> None:
    assert masked([b"hunter2"], b"hunt", b"ing\nhunter") == b"hunting\nhunter"


def test_the_longer_of_two_secrets_goes_whole() -> None:
    assert masked([b"abc", b"abcdef"], b"abc", b"def abc d\n") == b"*** *** d\n"


def test_nothing_is_held_back_that_cannot_be_a_secret() -> None:
    masker = Masker([b"hunter2"])
    assert masker.feed(b"progress 10% h") == b"progress 10% "
    assert masker.feed(b"a") == b"ha"


def test_the_lines_of_a_long_secret_are_replaced_one_by_one() -> None:
    quoted = KEY.replace(b"\n", b"\\n")
    assert masked([KEY], b"key: " + quoted + b"\nab\n") == b"key: ***\\n***\\n  ***\\nab\\n***\\n\nab\n"


def test_a_line_end_behind_a_secret_is_no_part_of_it() -> None:
    assert masked([b"hunter2\n"], b"is hunter2.") == b"is ***."


@pytest.mark.parametrize("secrets", [[], [b""], [b" \n"]])
def test_without_a_secret_nothing_changes(secrets: list[bytes]) -> None:
    assert masked(secrets, b"a", b"b\n") == b"ab\n"


WORDS = st.binary(min_size=1, max_size=6).filter(
    lambda word: word.strip() == word and b"*" not in word and len(word.splitlines()) == 1
)


@given(st.lists(WORDS, max_size=4), st.lists(st.sampled_from([b"a", b"ab", b"b", b"\n", b"ba", b"c"]), max_size=30))
def test_cutting_the_stream_anywhere_changes_nothing(secrets: list[bytes], parts: list[bytes]) -> None:
    secrets = [*secrets, b"ab", b"aba", b"bab"]
    assert masked(secrets, *parts) == masked(secrets, b"".join(parts))


@given(st.lists(WORDS, min_size=1, max_size=4), st.binary(max_size=40))
def test_no_secret_is_left(secrets: list[bytes], text: bytes) -> None:
    found = [part for part in re.split(rb"\*+", masked(secrets, secrets[0] + text + secrets[-1])) if part]
    assert not [secret for secret in secrets for part in found if secret in part]


def test_the_log_of_an_attempt_has_no_secret_in_it(lab: Lab) -> None:
    record = lab.play(
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
        mask=(b"hunter2",),
    )
    assert record.exit_code == 1
    assert lab.log() == "token ***\n***!\nchild ***\n***\n"


def test_a_masked_log_is_live_and_whole_after_a_kill(lab: Lab) -> None:
    key = lab.start(
        "import time\ndef work():\n    print('one')\n    print('two')\n    time.sleep(600)\n", mask=(b"hunter2",)
    )
    lab.wait_for(Started, key)
    until(lambda: lab.log() == "one\ntwo\n", "the log")
    lab.processes.kill(key)
    assert lab.end(key).signal == 9
    assert lab.log() == "one\ntwo\n"


def test_much_output_passes_the_mask(lab: Lab) -> None:
    lab.play("def work():\n    for n in range(20_000):\n        print('line', n, 'hunter2')\n", mask=(b"hunter2",))
    lines = lab.log().splitlines()
    assert len(lines) == 20_000
    assert lines[-1] == "line 19999 ***"


def test_a_daemon_that_holds_the_masked_output_holds_up_nothing(lab: Lab) -> None:
    record = lab.play(
        "import subprocess\ndef work():\n    subprocess.Popen(['sleep', '600'], start_new_session=True)\n    print('end')\n",
        mask=(b"hunter2",),
    )
    assert record.exit_code == 0
    assert lab.log() == "end\n"
