"""The product's rules, pure: no input or output, no clock, no network, no PromQL, no AWS."""
