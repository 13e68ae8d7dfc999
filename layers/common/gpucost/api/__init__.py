"""The core's routes, and the app that registers every feature's."""
