"""Tests of the Samsung backend."""
