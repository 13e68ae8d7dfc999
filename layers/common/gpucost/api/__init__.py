"""The core's routes, and the app that registers the routes of all features."""
