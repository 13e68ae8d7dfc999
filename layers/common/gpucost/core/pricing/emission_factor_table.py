"""Emission factors of AWS regions. Written by `python -m authoring.emission_factors`."""

SOURCE = (
    "https://github.com/cloud-carbon-footprint/cloud-carbon-footprint/blob/"
    "b7a049c7d25c0022919ab9010199dd9e77aa4577/packages/aws/src/domain/AwsFootprintEstimationConstants.ts"
)
DAY = "2024-03-25"
"""The day of the source's commit."""
PUE = "1.135"
"""Power usage effectiveness of AWS's data centers."""
KG_PER_KWH: dict[str, str] = {
    "af-south-1": "0.9006",
    "ap-east-1": "0.71",
    "ap-northeast-1": "0.4658",
    "ap-northeast-2": "0.4156",
    "ap-northeast-3": "0.4658",
    "ap-south-1": "0.7082",
    "ap-southeast-1": "0.408",
    "ap-southeast-2": "0.76",
    "ap-southeast-3": "0.7177",
    "ca-central-1": "0.12",
    "cn-north-1": "0.5374",
    "cn-northwest-1": "0.5374",
    "eu-central-1": "0.311",
    "eu-north-1": "0.0088",
    "eu-south-1": "0.2134",
    "eu-west-1": "0.2786",
    "eu-west-2": "0.225",
    "eu-west-3": "0.0511",
    "me-central-1": "0.4041",
    "me-south-1": "0.5059",
    "sa-east-1": "0.0617",
    "us-east-1": "0.379069",
    "us-east-2": "0.410608",
    "us-gov-east-1": "0.379069",
    "us-gov-west-1": "0.322167",
    "us-west-1": "0.322167",
    "us-west-2": "0.322167",
}
"""kg CO2e per kWh by region, location-based, without PUE."""
