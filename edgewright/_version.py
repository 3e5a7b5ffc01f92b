"""The version; nothing else states it."""

VERSION = "0.1.0"
