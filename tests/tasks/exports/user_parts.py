from scipy.special import expit


def scaled(values, params):
    """Call a library that an export must then require."""
    return {"y": params["scale"] * values, "p": expit(values)}
