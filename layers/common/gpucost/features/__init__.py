"""Features on top of the core. Each holds its own rules, storage, routes and settings, and imports no other."""
