"""The command line, one module for each flow, and the subpackages that they use."""
