"""What AWS asks for things, as its own price list says (AWS Price List Query API)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.seams.aws import Aws

# The API answers about all regions, in few of them.
_REGION = "us-east-1"
_ON_DEMAND = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}


def hourly(aws: Aws, region: str, types: Sequence[str]) -> float | None:
    """Return what instances of these types cost an hour on demand, in USD; None if one of the
    prices is not known.
    """
    prices = {
        name: _price(aws, region, instanceType=name, **_ON_DEMAND) for name in dict.fromkeys(types)
    }
    known = [price for name in types if (price := prices[name]) is not None]
    if types and len(known) == len(types):
        return sum(known)
    return None


def monthly(aws: Aws, region: str, gibibytes: int, kind: str) -> float | None:
    """Return what a volume costs a month, in USD, by its size alone; None if nobody says."""
    price = _price(aws, region, productFamily="Storage", volumeApiName=kind)
    return None if price is None else price * gibibytes


def _price(aws: Aws, region: str, **product: str) -> float | None:
    fields = {"regionCode": region, **product}
    filters = [
        {"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in fields.items()
    ]
    try:
        found = aws.call(
            "pricing", "get_products", region=_REGION, ServiceCode="AmazonEC2", Filters=filters
        )
        terms = []

        for entry in found["PriceList"]:
            for term in json.loads(entry)["terms"]["OnDemand"].values():
                terms.append(term)

        prices = []
        for term in terms:
            for part in term["priceDimensions"].values():
                prices.append(float(part["pricePerUnit"]["USD"]))
    except (TrainyardError, KeyError):
        # A price is never worth an error: few may ask for them.
        return None

    return max(prices, default=None)
