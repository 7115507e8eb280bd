"""Prices of AWS's own price list (AWS Price List Query API)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.seams.aws import Aws

# The price API runs in a few regions; each has the prices of all regions.
_REGION = "us-east-1"
_ON_DEMAND = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}


def hourly(aws: Aws, region: str, types: Sequence[str]) -> float | None:
    """Return the on-demand price in USD of one hour of all these instances.

    `types` has an entry for each instance. None if there is no instance, or if
    one price is unknown.
    """
    if not types:
        return None

    prices = {}
    for name in dict.fromkeys(types):
        price = _price(aws, region, instanceType=name, **_ON_DEMAND)
        if price is None:
            return None
        prices[name] = price
    return sum(prices[name] for name in types)


def monthly(aws: Aws, region: str, gibibytes: int, kind: str) -> float | None:
    """Return the monthly price in USD of such a volume; None if unknown."""
    price = _price(aws, region, productFamily="Storage", volumeApiName=kind)
    if price is None:
        return None
    return price * gibibytes


def _price(aws: Aws, region: str, **product: str) -> float | None:
    fields = {"regionCode": region, **product}
    filters = [
        {"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()
    ]
    try:
        products = aws.call(
            "pricing", "get_products", region=_REGION, ServiceCode="AmazonEC2", Filters=filters
        )
        prices = []
        for product_text in products["PriceList"]:
            for term in json.loads(product_text)["terms"]["OnDemand"].values():
                for part in term["priceDimensions"].values():
                    prices.append(float(part["pricePerUnit"]["USD"]))
    except (TrainyardError, KeyError):
        # Few users may ask for prices, and commands must work without them.
        return None

    return max(prices, default=None)
