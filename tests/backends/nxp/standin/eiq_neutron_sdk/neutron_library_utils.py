from types import SimpleNamespace

_TARGETS = ("imxrt700", "imx95")


def isNeutronTarget(name):  # noqa: N802
    return name in _TARGETS


def getNeutronTargets():  # noqa: N802
    return [SimpleNamespace(name=name) for name in _TARGETS]
