"""Price answers of the clouds, with invented amounts: inputs of the guide's commands that make price sheets."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["ANSWERS"]


def _azure(price: float, **changes: Any) -> dict[str, Any]:
    item = {
        "currencyCode": "USD",
        "retailPrice": price,
        "armRegionName": "eastus",
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "meterName": "NC6s v3",
        "productName": "Virtual Machines NCSv3 Series",
        "skuName": "NC6s v3",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_NC6s_v3",
    }
    return item | changes


def _product(price: str, **attributes: str) -> str:
    """An entry of a price list, which is a text of JSON."""
    every = {
        "instanceType": "m5.xlarge",
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        **attributes,
    }
    dimension = {"rateCode": "A.T.R", "unit": "Hrs", "pricePerUnit": {"USD": price}}
    terms = {"A.T": {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"A.T.R": dimension}}}
    return json.dumps({"product": {"sku": "A", "attributes": every}, "terms": {"OnDemand": terms}})


def _sku(description: str, nanos: int, region: str = "us-central1") -> dict[str, Any]:
    price = {"currencyCode": "USD", "units": "0", "nanos": nanos}
    rates = {"usageUnit": "h", "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}
    return {"description": description, "serviceRegions": [region], "pricingInfo": [{"pricingExpression": rates}]}


_SPOT = {
    "AvailabilityZone": "us-east-1a",
    "InstanceType": "m5.xlarge",
    "ProductDescription": "Linux/UNIX",
    "SpotPrice": "0.31",
    "Timestamp": "2026-11-20T10:00:00+00:00",
}

ANSWERS: dict[str, dict[str, Any]] = {
    "spot.csv": {"SpotPriceHistory": [_SPOT, {**_SPOT, "SpotPrice": "0.40", "AvailabilityZone": "us-east-1b"}]},
    "on-demand.csv": {
        "PriceList": [_product("0.192"), _product("9", tenancy="Dedicated"), _product("9", preInstalledSw="SQL Ent")]
    },
    "azure.csv": {
        "Items": [
            _azure(0.9),
            _azure(0.3, skuName="NC6s v3 Spot", meterName="NC6s v3 Spot"),
            _azure(9.0, productName="Virtual Machines NCSv3 Series Windows"),
            _azure(9.0, type="Reservation"),
            _azure(9.0, type="DevTestConsumption"),
            _azure(9.0, skuName="NC6s v3 Low Priority"),
            _azure(9.0, productName="NCSv3 Series CloudServices"),
            _azure(9.0, unitOfMeasure="1 Month"),
        ]
    },
    "google.csv": {
        "skus": [
            _sku("Spot Preemptible N1 Predefined Instance Core running in Americas", 6_655_000),
            _sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", 892_000),
            _sku("Spot Preemptible N1 Predefined Instance Ram running in Sydney", 9_000_000, "australia-southeast1"),
            _sku("N1 Predefined Instance Core running in Americas", 31_611_000),
            _sku("Licensing Fee for Windows Server", 40_000_000),
        ]
    },
}
"""The request of each command of the guide, by the sheet that it makes."""
