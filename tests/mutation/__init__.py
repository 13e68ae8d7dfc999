"""Mutation testing of the metering core (`make mutate`): the fleet's recorded observations against their expected figures."""
