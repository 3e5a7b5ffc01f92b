"""``python -m edgewright.demo`` recompiles the shipped program after a change of the compiler."""

from __future__ import annotations

from edgewright.demo import MODEL


def main() -> None:
    from edgewright.demo.model import export_cifarnet, lower_cifarnet

    print(f"wrote {MODEL} ({lower_cifarnet(export_cifarnet()).save(MODEL)} bytes)")


if __name__ == "__main__":
    main()
