import warnings

with warnings.catch_warnings():  # BoTorch's dependencies use what torch has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import botorch  # noqa: F401
