"""A controller publishes the authority of its certificate once, and again when it has changed."""

from __future__ import annotations

from tests.cluster.reading.served import Served

from spotwright.cluster.log_server import publish_authority


def test_the_authority_is_written_when_it_is_new_or_has_changed(served: Served) -> None:
    for authority in ("first", "first", "second"):
        assert served._api is not None
        served.do(publish_authority(served._api, "spotwright", authority))
    path = "/api/v1/namespaces/spotwright/configmaps/spotwright-reading"
    assert served.kubernetes.objects[path]["data"] == {"ca.crt": "second"}
    assert served.kubernetes.writes == ["POST", "PUT"]
