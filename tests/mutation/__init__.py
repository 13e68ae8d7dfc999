"""Mutation testing of the metering core (`make mutate`): the fleet's observations, recorded once, against its truth."""
