"""The only room that reads environment variables and YAML."""
