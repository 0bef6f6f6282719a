"""How long a test waits for what must happen."""

HANG_SECS = 120.0
"""Only ends a test that hangs: no test is about it, and on a busy machine everything takes many times as long."""
