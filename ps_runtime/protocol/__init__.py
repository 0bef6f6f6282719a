"""Defines the messages between a role and a ps, their bodies, and the interface of their handler."""
