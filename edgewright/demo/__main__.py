"""``python -m edgewright.demo`` compiles the shipped program afresh, after a change of the compiler."""

from __future__ import annotations

from edgewright.demo import MODEL


def main() -> None:
    from edgewright.demo.model import exported, lowered

    print(f"wrote {MODEL} ({lowered(exported()).save(MODEL)} bytes)")


if __name__ == "__main__":
    main()
