"""The webhook's own certificates: accepted by every client that trusts the authority, shared by replicas, and renewed in time."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from spotwright.cluster.certificates import Authority, make_serving_certificate, why_refused
from spotwright.cluster.controller_settings import WebhookSettings
from spotwright.errors import StateError

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
NAME = "spotwright.spotwright.svc"


def is_accepted(certificate: bytes, bundle: bytes, name: str, at: datetime) -> bool:
    store = Store(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except VerificationError:
        return False
    return True


def test_a_serving_certificate_is_accepted_for_its_names_and_for_a_week(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    bundle = authority.renew(NOW)
    certificate, _ = authority.issue([NAME], NOW)
    assert is_accepted(certificate, bundle, NAME, NOW)
    assert not is_accepted(certificate, bundle, "another.svc", NOW)
    assert not is_accepted(certificate, bundle, NAME, NOW + timedelta(days=8))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://10.89.0.1:9443", "10.89.0.1"),
        ("https://[fd00::1]:9443/some/path", "fd00::1"),
        ("https://webhook.example.com", "webhook.example.com"),
        ("https://webhook.example.com/below", "webhook.example.com"),
    ],
)
def test_the_certificate_is_for_the_host_of_the_webhook_s_url_and_refused_for_another(
    tmp_path: Path, url: str, host: str
) -> None:
    settings = WebhookSettings(authority_folder=tmp_path, where=url)
    authority = Authority(tmp_path)
    bundle = authority.renew()
    make_serving_certificate(authority, settings.served_names, tmp_path)
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    assert why_refused(*files, bundle, [host]) == ""
    assert why_refused(*files, bundle, ["another.example.com"]) != ""


def test_all_replicas_use_one_authority(tmp_path: Path) -> None:
    first, second = Authority(tmp_path), Authority(tmp_path)
    assert first.renew(NOW) == second.renew(NOW)
    assert is_accepted(second.issue([NAME], NOW)[0], first.renew(NOW), NAME, NOW)


def test_a_new_authority_stands_beside_the_old_one_until_that_has_expired(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old = authority.renew(NOW)
    certificate, _ = authority.issue([NAME], NOW + timedelta(days=19))
    later = NOW + timedelta(days=21)
    both = authority.renew(later)
    assert both != old
    assert is_accepted(certificate, both, NAME, later)
    assert is_accepted(authority.issue([NAME], later)[0], both, NAME, later)
    assert len(x509.load_pem_x509_certificates(authority.renew(NOW + timedelta(days=31)))) == 1


def test_keys_can_be_read_by_their_owner_alone_and_certificates_are_due_after_two_thirds(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "shared")
    authority.renew()
    due = make_serving_certificate(authority, ["127.0.0.1"], tmp_path)
    assert timedelta(days=4) < due - datetime.now(UTC) < timedelta(days=5)
    for key in (tmp_path / "tls.key", tmp_path / "shared" / "authority.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_damaged_authority_is_named_with_the_fix(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.renew(NOW)
    (tmp_path / "authority.pem").write_text("no certificate")
    with pytest.raises(StateError, match=r"authority\.pem: cannot be read; remove it"):
        authority.renew(NOW)
