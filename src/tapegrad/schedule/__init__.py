"""Tape -> Plan -> Plan: lowering, and one file a pass."""
