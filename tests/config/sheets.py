"""Price sheets in the providers' forms, with invented prices: what each reader must understand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["aws_product", "azure_item", "billed", "offer_file", "sku", "spot_price"]


def azure_item(**changes: Any) -> dict[str, Any]:
    item = {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 0.9,
        "unitPrice": 0.9,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "meterName": "NC6s v3",
        "productName": "Virtual Machines NCSv3 Series",
        "skuName": "NC6s v3",
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_NC6s_v3",
    }
    return item | changes


def spot_price(
    price: str = "0.31", zone: str = "us-east-1a", at: str = "2026-11-20T10:00:00+00:00", **changes: Any
) -> dict[str, Any]:
    entry = {
        "AvailabilityZone": zone,
        "InstanceType": "m5.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": price,
        "Timestamp": at,
    }
    return entry | changes


def aws_product(sku: str = "AAA", price: str = "0.192", **attributes: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A product and its on-demand terms."""
    product = {
        "sku": sku,
        "productFamily": "Compute Instance",
        "attributes": {
            "instanceType": "m5.xlarge",
            "regionCode": "us-east-1",
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            **attributes,
        },
    }
    dimension = {"rateCode": f"{sku}.T.R", "unit": "Hrs", "pricePerUnit": {"USD": price}}
    terms = {
        f"{sku}.T": {"sku": sku, "effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {f"{sku}.T.R": dimension}}
    }
    return product, terms


def offer_file(*products: tuple[dict[str, Any], dict[str, Any]]) -> str:
    return json.dumps(
        {
            "formatVersion": "v1.0",
            "offerCode": "AmazonEC2",
            "publicationDate": "2026-11-18T00:00:00Z",
            "products": {product["sku"]: product for product, _ in products},
            "terms": {"OnDemand": {product["sku"]: terms for product, terms in products}},
        }
    )


def sku(description: str, nanos: int, region: str = "us-central1", unit: str = "h") -> dict[str, Any]:
    price = {"currencyCode": "USD", "units": "0", "nanos": nanos}
    return {
        "skuId": "0000-AAAA",
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": "OnDemand"},
        "serviceRegions": [region],
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-19T00:00:00Z",
                "pricingExpression": {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]},
            }
        ],
    }


def billed(description: str, cost: str, amount: str, **changes: Any) -> Mapping[str, Any]:
    """A row of a billing export, as BigQuery gives it as JSON: numbers are texts."""
    row = {
        "service": {"description": "Compute Engine"},
        "sku": {"id": "0000-AAAA", "description": description},
        "usage_start_time": "2026-11-19 00:00:00 UTC",
        "usage_end_time": "2026-11-19 01:00:00 UTC",
        "location": {"region": "us-central1"},
        "cost": cost,
        "currency": "USD",
        "usage": {"amount_in_pricing_units": amount, "pricing_unit": "hour"},
    }
    return row | changes
