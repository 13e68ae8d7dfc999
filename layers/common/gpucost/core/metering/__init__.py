"""Metering: from observed metrics to the GPU-hours that each pod held and used."""
