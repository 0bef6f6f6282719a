from scipy.special import expit


def number_in(line):
    """Return what stands before the first semicolon."""
    return float(line.partition(";")[0])


def scaled(values, params):
    """Call a library that an export must then require."""
    return {"y": params["scale"] * values, "p": expit(values)}
